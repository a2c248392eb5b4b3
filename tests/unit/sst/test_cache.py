"""The cache stays within its bytes, keeps used entries, and frees evicted ones."""

import tracemalloc

import anyio
import pytest

from shale.format.sst.filter import NO_FILTERS
from shale.format.sst.index import BlockIndex
from shale.sst.cache import ENTRY_OVERHEAD_BYTES, BlockCache
from shale.sst.meta import SstMeta
from shale.sst.slot import SstSlot
from shale.types import Compression, Entry, Sst, SstInfo, Ulid
from tests.unit.engine.reading import Shelf

ROWS = [Entry(b"k%04d" % key, b"v" * 100, key + 1, 0) for key in range(500)]


async def loaded(shelf: Shelf) -> SstSlot:
    """A slot whose metadata is in memory."""
    slot = shelf.reader.slot(await shelf.sst(ROWS))
    await shelf.reader.metadata.load(slot)
    return slot


async def read(shelf: Shelf, slot: SstSlot, block: int) -> None:
    await shelf.reader.data_blocks.images(slot, await shelf.reader.metadata.load(slot), block, block + 1)


def test_blocks_are_read_once_while_there_is_room() -> None:
    async def run() -> None:
        shelf = Shelf()
        slot = await loaded(shelf)
        block_count = len((await shelf.reader.metadata.load(slot)).index)
        for _ in range(3):
            for block in range(block_count):
                await read(shelf, slot, block)
        assert len(shelf.store.reads) == 1 + block_count
        assert shelf.reader.counts.block_misses == block_count
        assert shelf.reader.counts.block_hits == 2 * block_count

    anyio.run(run)


@pytest.mark.parametrize("capacity", [0, 3_000, 8_000, 30_000])
def test_never_more_than_the_capacity(capacity: int) -> None:
    async def run() -> None:
        shelf = Shelf(cache_bytes=capacity)
        slots = [await loaded(shelf) for _ in range(3)]
        for block in range(40):
            for slot in slots:
                await read(shelf, slot, block)
                assert shelf.reader.cache.used_bytes <= capacity
        kept = sum(len(image) for slot in slots for image in slot.images.values())
        assert kept <= capacity

    anyio.run(run)


def test_what_is_used_stays() -> None:
    """One block is used repeatedly while others are read once; the kernel marks uses the same way."""

    async def run() -> None:
        shelf = Shelf(cache_bytes=24_000)
        slot = await loaded(shelf)
        for block in range(1, 40):
            await read(shelf, slot, 0)
            await read(shelf, slot, block)
        assert 0 in slot.images
        assert 1 not in slot.images
        reads = [start for _, start, _ in shelf.store.reads]
        assert reads.count(0) == 1

    anyio.run(run)


def test_a_forgotten_sst_leaves_nothing() -> None:
    async def run() -> None:
        shelf = Shelf()
        cache = shelf.reader.cache
        one, other = await loaded(shelf), await loaded(shelf)
        await read(shelf, other, 0)
        before = (cache.used_bytes, len(cache))
        await read(shelf, one, 3)
        cache.forget(other)
        cache.forget(other)
        assert other.meta is None
        assert not other.words.any()
        cache.forget(one)
        assert (cache.used_bytes, len(cache)) == (0, 0)
        await read(shelf, other, 0)
        cache.forget(other)
        assert before[0] > 0

    anyio.run(run)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("cached", [True, False])
def test_metadata_whose_used_blocks_are_few_gives_way(cached: bool) -> None:
    """The cache has become too small for the metadata, and the used block is not in the queue of the metadata.

    An eviction that waits until the block is unused would never end.
    """

    async def run() -> None:
        shelf = Shelf()
        cache = shelf.reader.cache
        slots = [await loaded(shelf) for _ in range(4)]
        for slot in slots:
            await read(shelf, slot, 0)
            slot.touched[0] = 1
            if not cached:
                cache.drop_block(slot, 0)
                slot.touched[0] = 1
        metas = sum(slot.meta.size_bytes for slot in slots if slot.meta is not None)
        assert cache.used_bytes * 10 > metas
        cache.budget.capacity_bytes = cache.used_bytes - metas // 2
        cache.make_room()
        assert cache.used_bytes <= cache.capacity_bytes
        assert any(slot.meta is None for slot in slots)
        cache.shrink_to(0)
        assert (cache.used_bytes, len(cache)) == (0, 0)

    anyio.run(run)


def test_metadata_goes_with_its_blocks() -> None:
    async def run() -> None:
        shelf = Shelf(cache_bytes=12_000)
        slot = await loaded(shelf)
        await read(shelf, slot, 0)
        for _ in range(4):
            other = await loaded(shelf)
            for block in range(8):
                await read(shelf, other, block)
        assert slot.meta is None
        assert slot.images == {}

    anyio.run(run)


def test_metadata_in_use_is_not_read_again() -> None:
    """A cache without capacity, and a scan that still reads the SST."""

    async def run() -> None:
        shelf = Shelf(cache_bytes=0)
        slot = await loaded(shelf)
        assert len(shelf.store.reads) == 1
        held = await shelf.reader.metadata.load(slot)
        assert await shelf.reader.metadata.load(slot) is held
        assert len(shelf.store.reads) == 2
        del held
        await shelf.reader.metadata.load(slot)
        assert len(shelf.store.reads) == 3

    anyio.run(run)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_metadata_takes_the_memory_that_it_says(compression: Compression) -> None:
    async def run() -> None:
        shelf = Shelf(compression=compression, block_size_bytes=128)
        sst = await shelf.sst([Entry(b"k%08d" % key, b"v" * 100, key + 1, 0) for key in range(20_000)])
        await shelf.reader.meta(await shelf.sst(ROWS))  # loads what is loaded once
        used = shelf.reader.cache.used_bytes
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            await shelf.reader.meta(sst)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert grown == pytest.approx(shelf.reader.cache.used_bytes - used, rel=0.02)

    anyio.run(run)


def test_tables_of_blocks_count_once_a_block_is_kept() -> None:
    async def run() -> None:
        shelf = Shelf()
        cache = shelf.reader.cache
        slot = await loaded(shelf)
        assert slot.tables_bytes == 0
        before = cache.used_bytes
        for block in (0, 1):
            await read(shelf, slot, block)
        images = sum(map(len, slot.images.values()))
        assert slot.tables_bytes > 0
        assert cache.used_bytes - before == images + slot.tables_bytes + 2 * ENTRY_OVERHEAD_BYTES
        cache.forget(slot)
        assert cache.used_bytes == 0

    anyio.run(run)


def test_a_cache_serves_several_databases() -> None:
    async def run() -> None:
        shelf = Shelf()
        cache = BlockCache(1 << 20)
        readers = [shelf.reader_with(cache) for _ in range(2)]
        sst = await shelf.sst(ROWS)
        for reader in readers:
            await reader.meta(sst)
        assert len(cache) == 2

    anyio.run(run)


def test_callers_at_the_same_time_share_one_request() -> None:
    async def run() -> None:
        shelf = Shelf()
        sst = await shelf.sst(ROWS)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(shelf.reader.meta, sst)
        assert len(shelf.store.reads) == 1

    anyio.run(run)


@pytest.mark.parametrize("block_count", [3, 20_000])
def test_blocks_of_an_sst_of_any_size_are_kept_and_dropped(block_count: int) -> None:
    """The tables of a large SST are mapped; they live as long as its metadata."""
    index = BlockIndex.of(range(block_count), [b"%08d" % block for block in range(block_count)], data_len=block_count)
    slot = SstSlot(Sst(id=Ulid(1), info=SstInfo()), "x")
    for _ in range(2):
        slot.load(SstMeta(index, NO_FILTERS, None))
        for block in (0, block_count - 1):
            slot.put_image(block, b"%d" % block)
        assert slot.tables_bytes == 17 * block_count
        assert slot.drop_image(block_count - 1) == b"%d" % (block_count - 1)
        assert slot.images == {0: b"0"}
        slot.unload()
        assert slot.tables_bytes == 0
