"""Sections that expand to more than the rest of their SST allows are refused early, once, and by name."""

import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anyio
import numpy as np
import pytest

from shale.env import Env
from shale.errors import CorruptionError
from shale.format.blocks import decoder, section
from shale.format.blocks.compression import compress
from shale.format.blocks.refused_sections import REFUSED, REFUSED_MAX, RefusedSections, SectionKey
from shale.format.blocks.section import open_section, seal_section
from shale.format.sst import image_limits
from shale.format.sst.image_limits import block_image_max, filter_image_max, index_image_max
from shale.format.sst.stats import SstStats, encode_stats
from shale.kernels.rows import rows_from_entries
from shale.sst.builder import build_sst
from shale.sst.cache import BlockCache
from shale.sst.options import SstOptions
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.sst.verify.sst import verify_sst
from shale.store.memory import MemoryStore
from shale.types import EVERYTHING, Compression, Entry, Sst, SstInfo, Ulid

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
EXPANDING = [codec for codec in CODECS if codec is not Compression.SNAPPY]
"""Snappy expands to 21 times its bytes at most, which is always allowed."""
USUAL = 1 << 20
"""Instead of 16 MiB, which would take their time."""
BOMB_BYTES = 8 * USUAL
SST_ID = Ulid(1 << 80)
PATH = SstPaths("db").key(SST_ID)


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    REFUSED.clear()
    monkeypatch.setattr(image_limits, "IMAGE_BYTES_USUAL", USUAL)
    monkeypatch.setattr(decoder, "REMEMBERED_BYTES_MIN", USUAL)
    yield
    REFUSED.clear()


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the stored forms that were unpacked."""
    sizes: list[int] = []
    original = section.decompress

    def counted(compression: Compression, stored: Any, image_max: int | None = None) -> Any:
        sizes.append(len(stored))
        return original(compression, stored, image_max)

    monkeypatch.setattr(section, "decompress", counted)
    return sizes


def sst_of(entries: list[Entry], codec: Compression) -> tuple[bytes, SstInfo]:
    return build_sst(rows_from_entries(entries), SstOptions(compression=codec, min_filter_keys=1))


def with_section(data: bytes, info: SstInfo, kind: str, stored: bytes) -> tuple[bytes, SstInfo]:
    """Put a section at the end of the file, as if it had always been there."""
    if kind == "block":
        # The only block of the file; what follows it moves.
        grown = len(stored) - info.data_len
        moved = {name: getattr(info, name) + grown for name in ("filter_offset", "index_offset", "stats_offset")}
        return stored + data[info.data_len :], replace(info, **moved)
    return data + stored, replace(info, **{f"{kind}_offset": len(data), f"{kind}_len": len(stored)})


async def reader_of(data: bytes, info: SstInfo) -> tuple[SstReader, Sst, MemoryStore]:
    store = MemoryStore()
    await store.put(PATH, data)
    reader = SstReader(store, SstPaths("db"), BlockCache(1 << 20), Env.system())
    return reader, Sst(id=SST_ID, info=info, format_version=2), store


ROWS = [Entry(b"k%d" % number, b"v", number + 1, 0) for number in range(10)]


@pytest.mark.parametrize("kind", ["block", "index", "filter", "stats"])
@pytest.mark.parametrize("codec", EXPANDING)
def test_a_bomb_is_refused_early_once_and_by_name(kind: str, codec: Compression, unpacked: list[int]) -> None:
    async def main() -> None:
        bomb = seal_section(bytes(BOMB_BYTES), codec)
        data, info = with_section(*sst_of(ROWS, codec), kind, bomb)
        offset = 0 if kind == "block" else getattr(info, f"{kind}_offset")
        reader, sst, _ = await reader_of(data, info)

        async def read() -> None:
            slot = reader.slot(sst)
            meta = await reader.metadata.load(slot)
            await reader.data_blocks.images(slot, meta, 0, len(meta.index))

        tracemalloc.start()
        try:
            for attempt in range(3):
                before = len(unpacked)
                with pytest.raises(CorruptionError, match=f"{kind}: .*exceeds the limit") as raised:
                    await read()
                assert (raised.value.path, raised.value.offset) == (PATH, offset)
                assert (len(bomb) - 4 in unpacked[before:]) == (attempt == 0), "unpacked again"
            # A codec that streams joins its pieces: twice the limit.
            assert tracemalloc.get_traced_memory()[1] < 3 * max(USUAL, 32 * len(bomb))
        finally:
            tracemalloc.stop()

    anyio.run(main)


def test_all_ways_to_read_a_block_keep_the_limit(unpacked: list[int]) -> None:
    async def main() -> None:
        bomb = seal_section(bytes(BOMB_BYTES), Compression.ZLIB)
        data, info = with_section(*sst_of(ROWS, Compression.ZLIB), "block", bomb)
        reader, sst, store = await reader_of(data, info)
        slot = reader.slot(sst)
        meta = await reader.metadata.load(slot)
        index = replace(meta.index, offsets=np.array([0, len(bomb)], np.int64))
        meta = replace(meta, index=index)
        for read in (
            lambda: reader.data_blocks.rows(slot, meta, 0, 1),
            lambda: reader.data_blocks.open(slot, meta, 0, 1, EVERYTHING),
            lambda: reader.data_blocks.images(slot, meta, 0, 1),
        ):
            REFUSED.clear()
            with pytest.raises(CorruptionError, match=r"block: .*exceeds the limit"):
                await read()
        found = await verify_sst(store, PATH, sst, Env.system())
        assert any("exceeds the limit" in finding.what for finding in found.findings)

    anyio.run(main)


@pytest.mark.parametrize("codec", CODECS)
def test_the_largest_rows_of_a_file_are_read(codec: Compression) -> None:
    """A value, and keys, that shrink a thousandfold and are above every fixed limit."""

    async def main() -> None:
        value = bytes(3 * USUAL)
        keys = [number.to_bytes(2, "big") + bytes(65_533) for number in range(60)]
        rows = [*(Entry(key, b"", 1, 0) for key in keys), Entry(b"\xff", value, 2, 0)]
        data, info = sst_of(rows, codec)
        assert info.index_len < USUAL
        reader, sst, store = await reader_of(data, info)
        meta = await reader.meta(sst)
        read = await reader.rows(sst, 0, len(meta.index))
        assert len(read) == 61
        assert read.key(59) == keys[59]
        assert int(read.val_offsets[-1]) == len(value)
        found = await verify_sst(store, PATH, sst, Env.system())
        assert found.is_sound, found.findings

    anyio.run(main)


def test_limits_follow_the_stats() -> None:
    assert block_image_max(None) is index_image_max(None) is filter_image_max(None) is None
    small = SstStats(num_puts=1, raw_key_size=1, raw_val_size=1)
    assert block_image_max(small) == index_image_max(small) == filter_image_max(small) == USUAL
    large = SstStats(num_puts=10**6, raw_key_size=10**8, raw_val_size=10**9)
    assert block_image_max(large) == 10**8 + 10**9 + 64 * 10**6
    assert index_image_max(large) == 10**8 + 64 * 10**6
    assert filter_image_max(large) == 1024 * 10**6


def test_stats_of_many_blocks_stay_within_the_usual_ratio() -> None:
    """Their limit is the stored size alone."""
    blocks = np.tile(np.array([[40, 0, 0]], np.uint16), (100_000, 1))
    for counts in (blocks, np.zeros_like(blocks), np.full_like(blocks, 65_535)):
        image = encode_stats(SstStats(num_puts=1, raw_key_size=1, raw_val_size=1, blocks=counts))
        for codec in CODECS:
            assert len(image) < 16 * len(compress(codec, image))


def test_a_repaired_section_and_a_higher_limit_are_read(unpacked: list[int]) -> None:
    image = bytes(4 << 20)
    stored = seal_section(image, Compression.ZLIB)
    for _ in range(2):
        with pytest.raises(CorruptionError, match=r"index: .*exceeds the limit"):
            open_section(stored, Compression.ZLIB, "x", 7, image_max=1 << 20, kind="index")
    assert len(unpacked) == 1
    assert open_section(stored, Compression.ZLIB, "x", 7, image_max=5 << 20) == image
    cut = zlib.compress(image)[:-2]
    damaged = cut + zlib.crc32(cut).to_bytes(4, "big")
    for _ in range(2):
        with pytest.raises(CorruptionError, match="truncated"):
            open_section(damaged, Compression.ZLIB, "y")
    assert len(unpacked) == 3
    assert open_section(seal_section(image, Compression.ZLIB), Compression.ZLIB, "y") == image


class Flipped:
    """A transformer without authentication: of a wrong key only the codec knows."""

    def __init__(self, mask: int) -> None:
        self._mask = mask

    def encode(self, data: Any) -> bytes:
        return bytes(byte ^ self._mask for byte in bytes(data))

    decode = encode


def test_another_key_is_tried() -> None:
    right, wrong = Flipped(3), Flipped(5)
    stored = seal_section(b"image" * 9, Compression.ZLIB, right)
    for transformer in (wrong, None, wrong):
        with pytest.raises(CorruptionError, match="cannot unpack"):
            open_section(stored, Compression.ZLIB, "x", transformer=transformer)
    assert open_section(stored, Compression.ZLIB, "x", transformer=right) == b"image" * 9


def test_a_large_block_that_does_not_decode_is_remembered(unpacked: list[int]) -> None:
    """Its stats claim a value of that size, so it is unpacked once."""

    async def main() -> None:
        bomb = seal_section(bytes(2 * USUAL), Compression.ZSTD)
        data, info = sst_of(ROWS, Compression.ZSTD)
        stats = seal_section(
            encode_stats(SstStats(num_puts=1, raw_key_size=1, raw_val_size=BOMB_BYTES)), Compression.ZSTD
        )
        reader, sst, _ = await reader_of(*with_section(*with_section(data, info, "stats", stats), "block", bomb))
        slot = reader.slot(sst)
        meta = await reader.metadata.load(slot)
        meta = replace(meta, index=replace(meta.index, offsets=np.array([0, len(bomb)], np.int64)))
        unpacked.clear()
        for _ in range(3):
            with pytest.raises(CorruptionError):
                await reader.data_blocks.rows(slot, meta, 0, 1)
        assert unpacked == [len(bomb) - 4]

    anyio.run(main)


def test_an_image_beyond_memory_is_a_corruption(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr(zlib, "decompressobj", exhausted)
    with pytest.raises(CorruptionError, match=r"x at byte 5: filter: .* does not fit into memory"):
        open_section(seal_section(b"a", Compression.ZLIB), Compression.ZLIB, "x", 5, kind="filter")


def test_the_newest_refused_sections_are_kept() -> None:
    refused = RefusedSections()
    keys = [SectionKey("x", number, 0, Compression.ZLIB) for number in range(REFUSED_MAX + 10)]
    for key in [*keys, keys[-1]]:
        refused.add(key, "reason", image_max=None, transformer=None)
    assert len(refused.refusals) == REFUSED_MAX
    assert refused.reason(keys[9], image_max=None, transformer=None) is None
    assert refused.reason(keys[10], image_max=None, transformer=None) == "reason"
