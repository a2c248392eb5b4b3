"""Blocks that are much larger unpacked: a read returns them in parts."""

from typing import Any

import anyio
import pytest

from shale.format.blocks.decoder import StoredBlocks
from shale.kernels.rows import Rows, entries_from_rows
from shale.sst.source import BlockSource, CachedBlockSource, SstViewsSource
from shale.types import Compression, Entry, KeyRange, excluded, included
from tests.unit.engine.reading import Shelf

VALUE_BYTES = 300 << 10
ROWS = [Entry(b"k%05d" % key, bytes(VALUE_BYTES), key + 1, 0) for key in range(60)]
PART_BYTES_MAX = (1 << 20) + VALUE_BYTES + 1024
"""What a part of a small read has: a mebibyte, up to the end of a block."""


def unpacked_bytes(chunk: Any) -> int:
    if isinstance(chunk, StoredBlocks):
        return len(chunk.image)
    assert isinstance(chunk, Rows)
    return int(chunk.val_offsets[-1] - chunk.val_offsets[0])


async def chunks_of(source: Any) -> list[Any]:
    chunks: list[Any] = []
    while (chunk := await source.next()) is not None:
        assert not source.is_over or not chunks or chunk is not chunks[-1]
        chunks.append(chunk)
    assert await source.next() is None
    assert source.is_over
    return chunks


@pytest.mark.parametrize("codec", [Compression.ZLIB, Compression.ZSTD, Compression.LZ4, Compression.SNAPPY])
@pytest.mark.parametrize("kind", [SstViewsSource, BlockSource, CachedBlockSource])
def test_a_read_of_blocks_that_expand_is_returned_in_parts(kind: Any, codec: Compression) -> None:
    async def main() -> None:
        shelf = Shelf(compression=codec, cache_bytes=0)
        view = await shelf.view(ROWS)
        chunks = await chunks_of(kind(shelf.reader, (view,), read_ahead_bytes=1 << 20))
        assert max(map(unpacked_bytes, chunks)) <= 4 * PART_BYTES_MAX
        assert sum(map(unpacked_bytes, chunks)) >= len(ROWS) * VALUE_BYTES
        read = sum(end - start for _, start, end in shelf.store.reads if start < view.sst.info.data_len)
        assert read == view.sst.info.data_len, "every byte is read once"

    anyio.run(main)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 30])
@pytest.mark.parametrize("fetch_tasks", [1, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_parts_have_every_row_once_and_in_order(reverse: bool, fetch_tasks: int, cache_bytes: int) -> None:
    async def main() -> None:
        shelf = Shelf(compression=Compression.ZLIB, cache_bytes=cache_bytes)
        view = await shelf.view(ROWS)
        wanted = KeyRange(included(ROWS[1].key), excluded(ROWS[58].key))
        for _ in range(2):  # then from the cache, if it keeps them
            for read_bytes in (1 << 10, 5 << 10, 1 << 20):
                source = SstViewsSource(
                    shelf.reader, (view,), wanted, read_bytes, reverse=reverse, fetch_tasks=fetch_tasks
                )
                chunks = await chunks_of(source)
                found = [entry for chunk in (chunks[::-1] if reverse else chunks) for entry in entries_from_rows(chunk)]
                assert found == ROWS[1:58]
                assert max(map(unpacked_bytes, chunks)) <= 4 * PART_BYTES_MAX

    anyio.run(main)


def test_parts_that_are_kept_are_read_from_the_cache_later() -> None:
    async def main() -> None:
        shelf = Shelf(compression=Compression.ZLIB, cache_bytes=1 << 30)
        view = await shelf.view(ROWS)
        for kind in (SstViewsSource, CachedBlockSource):
            chunks = await chunks_of(kind(shelf.reader, (view,), read_ahead_bytes=64 << 10))
            assert max(map(unpacked_bytes, chunks)) <= PART_BYTES_MAX
        assert sum(end - start for _, start, end in shelf.store.reads[1:]) == view.sst.info.data_len

    anyio.run(main)


def test_blocks_that_do_not_expand_are_one_chunk() -> None:
    async def main() -> None:
        shelf = Shelf(compression=Compression.ZLIB, cache_bytes=0)
        view = await shelf.view([Entry(b"k%05d" % key, b"%050d" % key, key + 1, 0) for key in range(2000)])
        for kind in (SstViewsSource, BlockSource, CachedBlockSource):
            assert len(await chunks_of(kind(shelf.reader, (view,)))) == 1

    anyio.run(main)
