"""One SST: every flipped byte is found, and so are the defects of an incorrect writer."""

import random
from collections.abc import Callable
from dataclasses import replace

import anyio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.env import Env, InlineCpu, SystemClock
from shale.kernels.rows import rows_from_entries
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.sst.verify.sst import SstVerification, verify_sst
from shale.store.memory import MemoryStore
from shale.types import (
    FLAG_MERGE,
    FLAG_TOMBSTONE,
    Compression,
    Entry,
    FilterFormat,
    Sst,
    SstInfo,
    Ulid,
)
from tests.unit.kernels.strategies import SORTED_ROWS
from tests.unit.sst.verify.forge import SOUND, Forge, row

ENV = Env(SystemClock(), random.Random(1), InlineCpu())
ID = Ulid.from_parts(1_700_000_000_000, 7)
PATH = "db/compacted/x.sst"
ROWS = [
    entry
    for number in range(40)
    for entry in (
        Entry(b"key-%03d" % number, b"v" * 20, 100 + number, 0),
        Entry(b"key-%03d" % number, b"", 50, FLAG_TOMBSTONE if number % 3 else FLAG_MERGE),
    )
]


FEW_ROWS = ROWS[:20]
"""With small blocks these make every section, and a first, a middle and a last block, of few bytes."""


async def verify(data: bytes | None, info: SstInfo, version: int = 2) -> SstVerification:
    store = MemoryStore()
    if data is not None:
        await store.put(PATH, data)
    return await verify_sst(store, PATH, Sst(id=ID, info=info, format_version=version), ENV)


def verdict_on(data: bytes | None, info: SstInfo, version: int = 2) -> SstVerification:
    return anyio.run(verify, data, info, version)


def built(entries: list[Entry] = ROWS, **options: object) -> tuple[bytes, SstInfo]:
    chosen = {"block_size_bytes": 256, "min_filter_keys": 0, **options}
    return build_sst(rows_from_entries(entries), SstOptions(**chosen))  # type: ignore[arg-type]


@given(
    SORTED_ROWS, st.sampled_from([64, 1024, 4096]), st.sampled_from(Compression), st.sampled_from([0, 1000])
)  # fmt: skip
def test_what_the_builder_makes_is_sound(
    entries: list[Entry], block_size: int, compression: Compression, min_filter_keys: int
) -> None:
    data, info = built(
        entries, block_size_bytes=block_size, compression=compression, min_filter_keys=min_filter_keys
    )  # fmt: skip
    verdict = verdict_on(data, info)
    assert verdict.findings == ()
    totals = verdict.totals
    assert (totals.rows, totals.first_key, totals.last_key) == (len(entries), entries[0].key, entries[-1].key)
    assert (totals.min_seq, totals.max_seq) == (min(e.seq for e in entries), max(e.seq for e in entries))
    assert verdict.read_bytes == len(data)


@pytest.mark.slow
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_every_flipped_byte_is_found(compression: Compression) -> None:
    """With the manifest beside it there is no byte that could change unseen: not even in the trailer, which has no
    checksum."""
    data, info = built(FEW_ROWS, block_size_bytes=128, compression=compression)

    async def main() -> None:
        for place in range(len(data)):
            flipped = bytearray(data)
            flipped[place] ^= 1 << place % 8
            verdict = await verify(bytes(flipped), info)
            assert verdict.findings, f"byte {place} of {len(data)}"
            assert all(finding.object == PATH for finding in verdict.findings)

    anyio.run(main)


def test_every_shorter_and_a_longer_file_is_found() -> None:
    data, info = built(FEW_ROWS, block_size_bytes=128)

    async def main() -> None:
        for size in range(len(data)):
            assert (await verify(data[:size], info)).findings, size
        assert (await verify(data + b"\x00", info)).findings

    anyio.run(main)
    assert "is gone" in str(verdict_on(None, info).findings[0])


def test_one_broken_block_does_not_hide_the_next() -> None:
    data, info = built()
    broken = bytearray(data)
    broken[10] ^= 1
    broken[info.data_len - 20] ^= 1
    broken[info.stats_offset] ^= 1
    verdict = verdict_on(bytes(broken), info)
    assert [(finding.what, finding.offset) for finding in verdict.findings] == [
        ("checksum mismatch", info.stats_offset),
        ("checksum mismatch", 0),
        ("checksum mismatch", verdict.findings[-1].offset),
    ]
    assert 0 < verdict.totals.rows < len(ROWS)


def test_the_manifest_is_what_readers_believe() -> None:
    data, info = built()
    for wrong in (
        replace(info, first_entry=b"key-0"),
        replace(info, last_entry=None),
        replace(info, last_entry=b"key-5"),
        replace(info, stats_len=0, stats_offset=0),
        replace(info, filter_len=0, filter_offset=info.index_offset),
        replace(info, index_len=info.index_len - 1),
        replace(info, stats_offset=info.stats_offset - 1),
        replace(info, stats_offset=5),
        replace(info, compression=Compression.ZSTD),
        replace(info, filter_format=FilterFormat.LEGACY),
    ):
        assert verdict_on(data, wrong).findings, wrong
    assert "format version 2, the manifest says 1" in str(verdict_on(data, info, version=1).findings[0])


def _swap(forge: Forge) -> None:
    forge.blocks[0].reverse()


def _older_first(forge: Forge) -> None:
    forge.blocks[1].reverse()


def _same_twice(forge: Forge) -> None:
    forge.blocks[2][0] = row(b"c", 5)


def _blocks_swapped(forge: Forge) -> None:
    forge.blocks[0], forge.blocks[1] = forge.blocks[1], forge.blocks[0]


def _separator_above(forge: Forge) -> None:
    forge.separators[1] = b"ca"


def _separator_below(forge: Forge) -> None:
    forge.separators[1] = b"b"


def _not_in_filter(forge: Forge) -> None:
    forge.hashed = forge.entries[:-1]


def _puts(forge: Forge) -> None:
    forge.stats = replace(forge.stats, num_puts=5, num_deletes=1)


def _key_bytes(forge: Forge) -> None:
    forge.stats = replace(forge.stats, raw_key_size=7)


def _block_counts(forge: Forge) -> None:
    forge.stats = replace(forge.stats, blocks=np.array([[2, 0, 0], [1, 1, 0], [2, 0, 0]], np.uint16))


def _too_few_counts(forge: Forge) -> None:
    forge.stats = replace(forge.stats, blocks=np.array([[2, 0, 0], [2, 0, 0]], np.uint16))


def _gap(forge: Forge) -> None:
    forge.gap = b"no owner"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (None, None),
        (_swap, "the row b'a' seq 1 follows b'b' seq 1"),
        (_older_first, "the row b'c' seq 9 follows b'c' seq 5"),
        (_same_twice, "the row b'c' seq 5 follows b'c' seq 5"),
        (_blocks_swapped, "the row b'a' seq 1 follows b'c' seq 5"),
        (_separator_above, "the index has b'ca' for a block that begins with b'c'"),
        (_separator_below, "the index has b'b' for a block after b'b'"),
        (_not_in_filter, "the filter _bf denies the key b'd'"),
        (_puts, "its stats count 5 puts, there are 6"),
        (_key_bytes, "its stats count 7 bytes of keys, there are 6"),
        (_block_counts, "the stats count [1, 1, 0] puts, deletes and merges, there are [2, 0, 0]"),
        (_too_few_counts, "the stats tell of 2 blocks, there are 3"),
        (_gap, "the footer begins at byte"),
    ],
)
@pytest.mark.parametrize("one_by_one", [False, True], ids=["together", "one by one"])
def test_what_a_wrong_writer_does(
    change: Callable[[Forge], None] | None, said: str | None, one_by_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if one_by_one:
        monkeypatch.setattr("shale.sst.verify.sst.READ_AHEAD_BYTES", 1)
    forge = Forge([list(block) for block in SOUND])
    if change is not None:
        change(forge)
    verdict = verdict_on(*forge.write())
    if said is None:
        assert verdict.findings == ()
    else:
        assert any(said in finding.what for finding in verdict.findings), verdict.findings


def test_findings_are_bounded() -> None:
    data, info = built([Entry(b"%06d" % number, b"v" * 40, 1, 0) for number in range(5000)], block_size_bytes=64)
    broken = bytearray(data)
    for place in range(0, info.data_len, 20):
        broken[place] ^= 1
    assert 100 <= len(verdict_on(bytes(broken), info).findings) <= 102
