"""Damage to SlateDB's files raises ``CorruptionError`` with a place, or changes nothing.

Manifests and compactions files have no checksum, so a flipped bit may also read as another valid manifest.
"""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shale.errors import CorruptionError
from shale.format.compactions import decode_compactions
from shale.format.manifest import decode_manifest
from shale.format.sequence_tracker import SequenceTracker
from shale.format.sst.filter import decode_filters
from shale.format.sst.index import decode_index
from shale.format.sst.info import decode_trailer
from shale.format.sst.stats import decode_stats
from tests.examples import examples
from tests.golden_files import golden, label
from tests.interop.sst_sections import open_sst

MEMORY_PER_BYTE = 400
MEMORY_FREE = 2 << 20


def metadata_files() -> list[tuple[Callable[..., object], bytes]]:
    """Return manifests and compactions files, the largest and most diverse of each case."""
    files: list[tuple[Callable[..., object], bytes]] = []
    for pattern, decode in (("*.manifest", decode_manifest), ("*.compactions", decode_compactions)):
        by_folder: dict[Path, bytes] = {}
        for path in golden(pattern):
            data = path.read_bytes()
            if len(data) >= len(by_folder.get(path.parent, b"")):
                by_folder[path.parent] = data
        files += [(decode, data) for data in by_folder.values()]
    return files


def sst_images() -> list[tuple[Callable[..., object], bytes]]:
    """Return decoded sections with decoders that take the path: damage that the checksum covers."""
    images: list[tuple[Callable[..., object], bytes]] = []
    seen: set[str] = set()
    for path in golden("*.sst"):
        case = path.parts[-4]
        if not path.stat().st_size or case in seen or path.parts[-2] != "compacted":
            continue
        seen.add(case)
        sst = open_sst(path.read_bytes(), str(path))
        info = sst.info

        def index(image: bytes, *, path: str, data_len: int = info.data_len) -> object:
            return decode_index(image, data_len=data_len, path=path)

        def filters(image: bytes, *, path: str, filter_format: object = info.filter_format) -> object:
            return decode_filters(image, filter_format, path=path)  # type: ignore[arg-type]

        images.append((index, sst.section(info.index_offset, info.index_len)))
        images.append((decode_stats, sst.section(info.stats_offset, info.stats_len)))
        if info.filter_len:
            images.append((filters, sst.section(info.filter_offset, info.filter_len)))
    return images


SUBJECTS = metadata_files() + sst_images()
EDITS = st.lists(
    st.tuples(st.integers(0, 2**20), st.sampled_from([b"\xff" * 4, b"\x00" * 4, b"\x7f", b"\x80", b"\x01", b"\xff"])),
    min_size=1,
    max_size=4,
)


def decodes_or_is_corrupt(decode: Callable[..., object], data: bytes) -> None:
    error = corruption_of(decode, data)
    if error is not None:
        assert error.path == "db/the-object"
        assert error.offset is not None
        assert 0 <= error.offset <= len(data)


def corruption_of(decode: Callable[..., object], data: bytes) -> CorruptionError | None:
    try:
        decode(data, path="db/the-object")
    except CorruptionError as error:
        return error
    return None


@pytest.mark.parametrize(("decode", "data"), SUBJECTS)
def test_every_truncation_of_a_small_file(decode: Callable[..., object], data: bytes) -> None:
    step = max(len(data) // 200, 1)
    for size in range(0, len(data), step):
        decodes_or_is_corrupt(decode, data[:size])


@pytest.mark.parametrize(("decode", "data"), SUBJECTS)
def test_every_byte_of_the_beginning_flipped(decode: Callable[..., object], data: bytes) -> None:
    for place in range(min(len(data), 300)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= flip
            decodes_or_is_corrupt(decode, bytes(damaged))


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, len(SUBJECTS) - 1), EDITS)
def test_numbers_overwritten_anywhere(subject: int, edits: list[tuple[int, bytes]]) -> None:
    decode, data = SUBJECTS[subject]
    damaged = bytearray(data)
    for place, new in edits:
        at = place % len(data)
        damaged[at : at + len(new)] = new[: len(data) - at]
    decodes_or_is_corrupt(decode, bytes(damaged))


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, len(SUBJECTS) - 1), st.binary(max_size=300))
def test_random_bytes_decode_or_raise_corruption(subject: int, data: bytes) -> None:
    decode, model = SUBJECTS[subject]
    decodes_or_is_corrupt(decode, data)
    decodes_or_is_corrupt(decode, model[:2] + data)


@pytest.mark.parametrize(("decode", "data"), SUBJECTS)
def test_counts_that_claim_four_billion_take_no_memory(decode: Callable[..., object], data: bytes) -> None:
    step = max(len(data) // 60, 1)
    for place in range(0, len(data) - 4, step):
        damaged = data[:place] + b"\xff\xff\xff\xff" + data[place + 4 :]
        decodes_or_is_corrupt(decode, damaged)  # what a first use imports is not counted
        # the lower of two: a thread that an earlier test left is measured with this one
        peak = min(peak_memory(decode, damaged) for _ in range(2))
        assert peak < MEMORY_FREE + MEMORY_PER_BYTE * len(data)


def peak_memory(decode: Callable[..., object], data: bytes) -> int:
    tracemalloc.start()
    try:
        decodes_or_is_corrupt(decode, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("path", [path for path in golden("*.sst") if path.stat().st_size][::7], ids=str)
def test_a_damaged_footer_is_noticed(path: Path) -> None:
    data = path.read_bytes()
    footer = int.from_bytes(data[-10:-2], "big")
    for place in range(footer, len(data)):
        damaged = data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
        with pytest.raises(CorruptionError) as caught:
            decode_trailer(damaged, object_size=len(damaged), path="db/x.sst")
        assert caught.value.path == "db/x.sst"
        assert caught.value.offset is not None
    for size in (0, 9, 10, 13, footer, len(data) - 1):
        with pytest.raises(CorruptionError):
            decode_trailer(data[:size], object_size=size, path="db/x.sst")


@pytest.mark.parametrize("path", [path for path in golden("*.sst") if path.stat().st_size], ids=label)
def test_no_flipped_byte_of_an_sst_goes_unnoticed(path: Path) -> None:
    """Every byte is covered by a checksum or locates one."""
    data = path.read_bytes()
    read_everything(data)
    for place in range(0, len(data), max(len(data) // 50, 1)):
        damaged = data[:place] + bytes([data[place] ^ 0x04]) + data[place + 1 :]
        with pytest.raises(CorruptionError) as caught:
            read_everything(damaged)
        assert caught.value.path == "db/x.sst"
        assert caught.value.offset is not None


def read_everything(data: bytes) -> None:
    sst = open_sst(data, "db/x.sst")
    info = sst.info
    for _ in sst.blocks():
        pass
    for offset, length in ((info.filter_offset, info.filter_len), (info.stats_offset, info.stats_len)):
        if length:
            sst.section(offset, length)


def test_damaged_trackers_are_points_or_corrupt() -> None:
    trackers = {decode_manifest(path.read_bytes()).sequence_tracker for path in golden("*.manifest")}
    for tracker in trackers:
        for place in range(len(tracker)):
            for flip in (0x01, 0x80, 0xFF):
                damaged = bytearray(tracker)
                damaged[place] ^= flip
                error = corruption_of(SequenceTracker.decode, bytes(damaged))
                assert error is None or error.path == "db/the-object"
