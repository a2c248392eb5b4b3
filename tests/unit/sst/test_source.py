"""Sources of scans: requests, windows and read-ahead."""

from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from shale.concurrency.read_ahead import ReadAhead
from shale.errors import ClosedError, CorruptionError
from shale.format.blocks.decoder import decode_images
from shale.iter.source import drain
from shale.kernels.rows import concat_rows, entries_from_rows
from shale.sst.cache import BlockCache
from shale.sst.meta import span_end
from shale.sst.reader import SstReader
from shale.sst.source import CachedBlockSource, SstViewsSource
from shale.store.memory import MemoryStore
from shale.types import Entry, KeyRange, RunId, SortedRun, excluded, included
from tests.unit.engine.reading import PATHS, Shelf, quiet_env


class CountingStore:
    """Counts the reads of a store that are in flight at the same time."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.in_flight = self.most = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await anyio.lowlevel.checkpoint()
        self.in_flight -= 1
        return await self._store.get_range(key, start, end)


ROWS = [Entry(b"k%05d" % key, bytes(100), key + 1, 0) for key in range(2000)]


@pytest.mark.parametrize(
    ("first", "size", "end"),
    [
        pytest.param(0, 1, 1, id="one block at least"),
        pytest.param(0, 100, 1, id="exactly one"),
        pytest.param(0, 101, 2, id="rounded up"),
        pytest.param(2, 10**9, 5, id="not beyond the last"),
        pytest.param(4, 1, 5, id="the last"),
    ],
)
def test_spans(first: int, size: int, end: int) -> None:
    assert span_end(np.arange(6) * 100, first, 5, size) == end


@pytest.mark.parametrize("read_bytes", [1, 5_000, 70_000, 10**7])
def test_one_request_for_each_read_ahead(read_bytes: int) -> None:
    """At most one request for each ``read_ahead_bytes`` of data, and one for the metadata."""

    async def run() -> None:
        shelf = Shelf()
        view = await shelf.view(ROWS)
        source = SstViewsSource(shelf.reader, (view,), read_ahead_bytes=read_bytes)
        assert entries_from_rows(concat_rows(await drain(source))) == ROWS
        blocks = len((await shelf.reader.meta(view.sst)).index)
        assert len(shelf.store.reads) <= 1 + min(blocks, -(-view.sst.info.data_len // read_bytes))
        assert await source.next() is None

    anyio.run(run)


def test_a_range_reads_only_its_blocks() -> None:
    async def run() -> None:
        shelf = Shelf()
        view = await shelf.view(ROWS)
        part = KeyRange(included(b"k00500"), excluded(b"k00510"))
        rows = concat_rows(await drain(SstViewsSource(shelf.reader, (view,), part)))
        assert entries_from_rows(rows) == ROWS[500:510]
        assert sum(end - start for _, start, end in shelf.store.reads[1:]) < 4096
        beyond = SstViewsSource(shelf.reader, (view,), KeyRange.half_open(b"l", None))
        assert await beyond.next() is None
        assert len(shelf.store.reads) == 2

    anyio.run(run)


def test_a_run_continues_a_key_in_the_next_sst() -> None:
    async def run() -> None:
        shelf = Shelf()
        versions = [Entry(b"k", bytes(300), seq, 0) for seq in range(60, 0, -1)]
        rows = [Entry(b"a", b"", 1, 0), *versions, Entry(b"z", b"", 2, 0)]
        views = [await shelf.view(part) for part in (rows[:20], rows[20:40], rows[40:])]
        run_ = SortedRun(id=RunId(0), ssts=tuple(views))
        assert entries_from_rows(concat_rows(await drain(SstViewsSource(shelf.reader, run_.ssts)))) == rows
        one = KeyRange(included(b"k"), included(b"k"))
        source = SstViewsSource(shelf.reader, run_.ssts, one, max_seq=30)
        assert entries_from_rows(concat_rows(await drain(source))) == versions[30:]

    anyio.run(run)


def test_the_next_read_is_in_flight_while_rows_are_used() -> None:
    async def run() -> None:
        shelf = Shelf()
        view = await shelf.view(ROWS)
        async with anyio.create_task_group() as tasks:
            source = SstViewsSource(shelf.reader, (view,), read_ahead_bytes=5000, read_ahead=ReadAhead(tasks))
            assert await source.next() is not None
            before = len(shelf.store.reads)
            await anyio.wait_all_tasks_blocked()
            assert len(shelf.store.reads) == before + 1
            rows = await drain(source)
            assert len(rows) > 10

    anyio.run(run)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", [SstViewsSource, CachedBlockSource])
def test_several_reads_are_made_at_the_same_time(kind: Any, reverse: bool) -> None:
    if reverse and kind is CachedBlockSource:
        pytest.skip("stored blocks are read forward")

    async def run() -> None:
        shelf = Shelf()
        view = await shelf.view(ROWS)
        store, most, chunks = CountingStore(shelf.store), 0, []
        reader = SstReader(store, PATHS, BlockCache(1 << 20), quiet_env())  # type: ignore[arg-type]
        wanted = KeyRange(included(ROWS[100].key), excluded(ROWS[1900].key))
        async with anyio.create_task_group() as tasks:
            options = {"read_ahead": ReadAhead(tasks), "fetch_tasks": 3, "reverse": reverse}
            source = kind(reader, (view,), wanted, 5000, **options)
            while (chunk := await source.next()) is not None:
                chunks.append(chunk)
                assert not source.is_over or chunk is chunks[-1]
            most = store.most
        assert most == 3
        if kind is not CachedBlockSource:
            found = [entry for chunk in (chunks[::-1] if reverse else chunks) for entry in entries_from_rows(chunk)]
            assert found == ROWS[100:1900]
        assert await source.next() is None

    anyio.run(run)


def test_what_was_read_ahead_is_taken_without_waiting() -> None:
    async def run() -> None:
        shelf = Shelf()
        view = await shelf.view(ROWS)
        async with anyio.create_task_group() as tasks:
            source = SstViewsSource(shelf.reader, (view,), read_ahead_bytes=5000, read_ahead=ReadAhead(tasks))
            taken = [await source.next()]
            without_waiting = 0
            while taken[-1] is not None:
                await anyio.wait_all_tasks_blocked()
                if source.is_ready:
                    without_waiting += 1
                    taken.append(source.take())
                    assert not source.is_ready
                    source.start_next_read()
                else:
                    taken.append(await source.next())
            assert without_waiting >= len(taken) - 3
            chunks = [chunk for chunk in taken if chunk is not None]
            assert entries_from_rows(concat_rows(chunks)) == ROWS

    anyio.run(run)


def test_errors_of_a_prefetch_reach_the_reader_of_the_rows() -> None:
    async def run() -> None:
        shelf = Shelf()
        view = await shelf.view(ROWS)
        async with anyio.create_task_group() as tasks:
            read_ahead = ReadAhead(tasks)
            source = SstViewsSource(shelf.reader, (view,), read_ahead_bytes=5000, read_ahead=read_ahead)
            await source.next()
            await anyio.wait_all_tasks_blocked()
            await shelf.store.delete(shelf.reader.slot(view.sst).path)
            await source.next()
            with pytest.raises(CorruptionError, match="does not exist"):
                await source.next()
            read_ahead.close()
            other = SstViewsSource(shelf.reader, (view,), read_ahead_bytes=5000, read_ahead=read_ahead)
            with pytest.raises((ClosedError, CorruptionError)):
                await drain(other)

    anyio.run(run)


def test_a_wanted_number_of_rows_is_not_much_overshot() -> None:
    async def run() -> None:
        shelf = Shelf()
        view = await shelf.view(ROWS)
        source = SstViewsSource(shelf.reader, (view,), KeyRange.half_open(b"k00100", None), expected_rows=100)
        rows = await source.next()
        assert rows is not None
        assert 90 <= len(rows) <= 200
        again = SstViewsSource(shelf.reader, (view,), KeyRange.half_open(b"k00100", None), expected_rows=100)
        reads = len(shelf.store.reads)
        assert await again.next() is not None
        assert len(shelf.store.reads) == reads  # short reads are kept

    anyio.run(run)


@pytest.mark.parametrize("count", [3, 2000])
def test_blocks_that_are_in_memory_decode_like_stored_ones(count: int) -> None:
    """An error names its place in the object."""

    async def run() -> None:
        shelf = Shelf(cache_bytes=1 << 22)
        sst = await shelf.sst(ROWS[:count])
        slot = shelf.reader.slot(sst)
        meta = await shelf.reader.metadata.load(slot)
        last = len(meta.index)
        images = await shelf.reader.data_blocks.images(slot, meta, 0, last)
        rows = decode_images(images, meta.index.offsets, version=sst.format_version, path=slot.path)
        assert entries_from_rows(rows) == ROWS[:count]
        broken = [*images[:-1], b"\x00\x00"]
        with pytest.raises(CorruptionError) as raised:
            decode_images(broken, meta.index.offsets, version=sst.format_version, path=slot.path)
        assert raised.value.path == slot.path
        assert raised.value.offset == int(meta.index.offsets[last - 1])

    anyio.run(run)
