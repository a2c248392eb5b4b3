"""One limit covers the memory of all databases of a process, in all threads."""

import asyncio
import gc
import sys
import threading

import anyio
import numpy as np
import pytest

from shale.engine.configure import configure
from shale.errors import InvalidRequestError
from shale.sst.budget import MemoryBudget
from shale.sst.cache import BlockCache, thread_cache
from shale.sst.process_cache import PROCESS_CACHE
from shale.sst.slot import SstSlot
from shale.sst.source import SstViewsSource
from shale.types import Entry, SstView
from tests.unit.engine.reading import PATHS, Shelf

ROWS = [Entry(b"k%04d" % key, b"v" * 100, key + 1, 0) for key in range(500)]


def shelf_of(cache: BlockCache) -> Shelf:
    shelf = Shelf()
    shelf.reader = shelf.reader_with(cache)
    return shelf


async def read_all(shelf: Shelf, slot: SstSlot, times: int = 1) -> None:
    for _ in range(times):
        meta = await shelf.reader.metadata.load(slot)
        for block in range(len(meta.index)):
            await shelf.reader.data_blocks.images(slot, meta, block, block + 1)


def test_scans_at_the_same_time_stay_within_the_bound() -> None:
    """Blocks that a scan holds count against the bound, and cached blocks are evicted for them."""

    async def run() -> None:
        budget = MemoryBudget(40_000)
        shelf = shelf_of(thread_cache(budget))
        views = [SstView(id=sst.id, sst=sst) for sst in [await shelf.sst(ROWS) for _ in range(6)]]
        most = 0

        async def scan(view: SstView) -> None:
            nonlocal most
            source = SstViewsSource(shelf.reader, (view,), read_ahead_bytes=2048)
            while await source.next() is not None:
                most = max(most, budget.used_bytes)
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            for view in views:
                tasks.start_soon(scan, view)
        assert 20_000 < most <= 40_000

    anyio.run(run)


def test_metadata_in_use_counts_although_it_was_evicted() -> None:
    async def run() -> None:
        shelf = Shelf(cache_bytes=0)
        held = await shelf.reader.meta(await shelf.sst(ROWS))
        assert len(shelf.reader.cache) == 0
        assert shelf.reader.cache.used_bytes == held.size_bytes
        del held
        assert shelf.reader.cache.used_bytes == 0

    anyio.run(run)


def test_blocks_read_once_do_not_push_out_what_is_used() -> None:
    async def run() -> None:
        shelf = Shelf(cache_bytes=60_000)
        hot = shelf.reader.slot(await shelf.sst(ROWS[:100]))
        await read_all(shelf, hot, times=3)
        for _ in range(5):
            passing = shelf.reader.slot(await shelf.sst(ROWS))
            await read_all(shelf, passing)
        before = len(shelf.store.reads)
        await read_all(shelf, hot)
        assert len(shelf.store.reads) == before

    anyio.run(run)


def test_what_comes_back_soon_stays() -> None:
    """A block that was evicted and read again is kept longer than one that was read once."""

    async def run() -> None:
        shelf = Shelf(cache_bytes=20_000)
        slot = shelf.reader.slot(await shelf.sst(ROWS))
        meta = await shelf.reader.metadata.load(slot)

        async def read(block: int) -> None:
            await shelf.reader.data_blocks.images(slot, meta, block, block + 1)

        for block in range(24):
            await read(block)
        evicted = next(block for block in reversed(range(24)) if block not in slot.images)
        await read(evicted)
        for block in range(24, 48):
            await read(block)
        assert evicted in slot.images

    anyio.run(run)


def test_hit_rate_on_a_skewed_trace() -> None:
    """Popular blocks among many, with full passes: one queue with second chances reaches a hit rate of 0.12."""
    rng = np.random.default_rng(1)
    shelf = Shelf(cache_bytes=130_000, block_size_bytes=1024)
    weights = 1 / np.arange(1, 901)
    picks = rng.permutation(900)[np.searchsorted(weights.cumsum() / weights.sum(), rng.random(6000))].tolist()

    async def run() -> float:
        rows = [Entry(b"k%05d" % key, b"v" * 950, key + 1, 0) for key in range(900)]
        slot = shelf.reader.slot(await shelf.sst(rows))
        meta = await shelf.reader.metadata.load(slot)
        assert len(meta.index) == 900
        for count, block in enumerate(picks):
            await shelf.reader.data_blocks.images(slot, meta, block, block + 1)
            if count % 500 == 0:
                first = int(rng.integers(0, 800))
                for passing in range(first, first + 60):
                    await shelf.reader.data_blocks.images(slot, meta, passing, passing + 1)
        counts = shelf.reader.counts
        return counts.block_hits / (counts.block_hits + counts.block_misses)

    assert anyio.run(run) > 0.5


def test_threads_share_one_bound() -> None:
    """The first thread holds all entries, until another thread needs its part."""
    budget = MemoryBudget(100_000)
    go, done = threading.Event(), threading.Event()
    used: list[int] = []

    async def other() -> None:
        shelf = shelf_of(thread_cache(budget))
        slot = shelf.reader.slot(await shelf.sst(ROWS))
        await read_all(shelf, slot, times=2)
        go.set()
        while not done.is_set():
            await anyio.sleep(0.001)
            used.append(budget.used_bytes)
        shelf.reader.close()

    thread = threading.Thread(target=lambda: anyio.run(other))
    thread.start()

    async def run() -> int:
        shelf = shelf_of(thread_cache(budget))
        slots = [shelf.reader.slot(await shelf.sst(ROWS)) for _ in range(2)]
        for _ in range(20):
            for slot in slots:
                await read_all(shelf, slot)
            if thread_cache(budget).used_bytes > 45_000:
                break
            await anyio.sleep(0.01)
        return thread_cache(budget).used_bytes

    assert go.wait(30)
    mine = anyio.run(run)
    done.set()
    thread.join()
    assert mine > 40_000
    assert max(used) <= 100_000 + 2 * 8192, "what a thread is putting in counts while it makes room for it"


def test_a_reader_gives_its_memory_back() -> None:
    async def run() -> None:
        cache = thread_cache(MemoryBudget(1 << 20))
        shelf, other = shelf_of(cache), shelf_of(cache)
        for each in (shelf, other):
            await read_all(each, each.reader.slot(await each.sst(ROWS)))
        shelf.reader.close()
        alone = cache.used_bytes
        assert alone > 0
        await read_all(shelf, shelf.reader.slot(await shelf.sst(ROWS)))
        assert cache.used_bytes > alone

    anyio.run(run)


def test_a_dropped_reader_releases_its_budget() -> None:
    async def run() -> None:
        cache = BlockCache(1 << 20)
        shelf = Shelf()
        reader = type(shelf.reader)(shelf.store, PATHS, cache, shelf.reader.env)
        await reader.meta(await shelf.sst(ROWS))
        del reader
        gc.collect()
        cache.make_room()
        assert (len(cache), cache.used_bytes) == (0, 0)

    anyio.run(run)


def test_the_process_has_one_bound_that_can_be_changed() -> None:
    before = PROCESS_CACHE.budget.capacity_bytes
    try:
        configure(cache_bytes="1MiB")
        assert PROCESS_CACHE.budget.capacity_bytes == 1 << 20
        assert PROCESS_CACHE.memory() is PROCESS_CACHE.memory()
        assert PROCESS_CACHE.memory().budget is PROCESS_CACHE.budget
        assert PROCESS_CACHE.memory(5_000).capacity_bytes == 5_000
        with pytest.raises(InvalidRequestError, match="cache_bytes"):
            configure(cache_bytes="much")
    finally:
        configure(cache_bytes=before)


def test_accesses_count_by_kind() -> None:
    async def run() -> None:
        shelf = Shelf()
        slot = shelf.reader.slot(await shelf.sst(ROWS))
        without = shelf.reader.slot(await Shelf.sst(shelf, ROWS[:0] or ROWS[:1]))
        await read_all(shelf, slot, times=2)
        await shelf.reader.metadata.load(without)
        shelf.metrics.refresh()
        blocks = len(slot.images)

        def shown(kind: str, result: str) -> float | None:
            labels = {"db": "", "entry_kind": kind, "result": result}
            return shelf.metrics.registry.get_sample_value("slatedb_db_cache_accesses_total", labels)

        assert (shown("data_block", "miss"), shown("data_block", "hit")) == (blocks, blocks)
        assert (shown("index", "miss"), shown("index", "hit")) == (2, 1)
        assert (shown("filter", "miss"), shown("filter", "hit")) == (2, 1)

    anyio.run(run)


def test_threads_may_join_while_others_count() -> None:
    budget = MemoryBudget(1000)
    held = [BlockCache(budget) for _ in range(40)]
    errors: list[RuntimeError] = []
    is_over = threading.Event()

    def count() -> None:
        while not is_over.is_set() and not errors:
            try:
                assert budget.used_bytes == 0
            except RuntimeError as error:
                errors.append(error)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(3000):
            held[number % 40] = BlockCache(budget)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval_s)
    assert not errors


def test_a_loop_that_stands_still_collects_no_requests() -> None:
    budget = MemoryBudget(1000)
    loop = asyncio.new_event_loop()
    largest, needy = BlockCache(budget), BlockCache(budget)
    calls: list[object] = []
    largest.loop = loop
    largest._held_bytes = 5000
    loop.call_soon_threadsafe = calls.append  # type: ignore[assignment,method-assign]
    for _ in range(100):
        budget.request_room(needy)
    assert len(calls) == 1
    calls[0]()  # type: ignore[operator]
    budget.request_room(needy)
    assert len(calls) == 2
    loop.close()
