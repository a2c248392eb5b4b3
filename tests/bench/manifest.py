"""Manifests through FlatBuffers, one core: CPU time of one manifest of a thousand SSTs."""

from random import Random

from shale.format.manifest import decode_manifest, encode_manifest
from shale.types import FilterFormat, Manifest, RunId, SortedRun, Sst, SstInfo, SstView, Tree, Ulid
from tests.bench.line import BenchLine, cpu_seconds

L0_COUNT = 8
RUN_COUNT = 8
RUN_SSTS = 124
TARGET = "<= 100 ms"
_CREATED_MS = 1_700_000_000_000


def manifest_of_a_thousand() -> Manifest:
    """Eight L0s and eight sorted runs, of SSTs of 64 MiB."""
    rng = Random(1)
    views = [SstView.identity(_sst(number, rng)) for number in range(L0_COUNT + RUN_COUNT * RUN_SSTS)]
    runs = tuple(
        SortedRun(id=RunId(RUN_COUNT - run), ssts=tuple(views[L0_COUNT + run * RUN_SSTS :][:RUN_SSTS]))
        for run in range(RUN_COUNT)
    )
    return Manifest(tree=Tree(l0=tuple(views[:L0_COUNT]), compacted=runs))


def manifest_lines() -> list[BenchLine]:
    """Encode and decode, as every commit and every poll of a changed manifest does."""
    manifest = manifest_of_a_thousand()
    data = encode_manifest(manifest)
    assert decode_manifest(data) == manifest
    encode_ms = 1000 * cpu_seconds(lambda: encode_manifest(manifest))
    decode_ms = 1000 * cpu_seconds(lambda: decode_manifest(data))
    return [
        BenchLine(name="manifest of 1,000 SSTs, encode", ours=encode_ms, unit="ms", target=TARGET),
        BenchLine(name="manifest of 1,000 SSTs, decode", ours=decode_ms, unit="ms", target=TARGET),
    ]


def _sst(number: int, rng: Random) -> Sst:
    info = SstInfo(
        first_entry=b"key%012d" % number,
        last_entry=b"key%012d" % (number + 1),
        filter_offset=67_000_000,
        filter_len=1_000,
        index_offset=67_001_000,
        index_len=70_000,
        stats_offset=67_071_000,
        stats_len=5_000,
        filter_format=FilterFormat.COMPOSITE,
    )
    return Sst(id=Ulid((_CREATED_MS + number) << 80 | rng.getrandbits(80)), info=info)
