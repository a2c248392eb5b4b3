"""Ends of a writer: which rows are where afterwards, what is left undone, and what reads under way get."""

from pathlib import Path
from typing import Any

import anyio
import pytest

import shale
from shale.engine.options import FlushType
from shale.engine.scan.scan import Scan
from shale.errors import ClosedError, UnavailableError
from shale.sst.disk_cache import DiskCacheOptions
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.unit.engine.write.timing import VirtualPlace, put, run_writers


@pytest.mark.parametrize("kind", FlushType)
@pytest.mark.parametrize("wal_enabled", [True, False])
def test_which_rows_are_where_after_a_close(kind: FlushType, *, wal_enabled: bool) -> None:
    """Without a WAL, a close that shall flush it flushes the memtable."""

    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open(wal_enabled=wal_enabled)
        await put(writer, b"a", b"b")
        assert not writer.is_closed
        await writer.close(kind)
        assert writer.is_closed
        assert writer.views.fast_point is None
        l0 = kind is FlushType.MEMTABLE or (kind is FlushType.WAL and not wal_enabled)
        assert len(writer.manifest.current.tree.l0) == l0
        assert not writer.manifest.current.checkpoints, "its sign of life is removed"
        assert writer.host.group.cancel_scope.cancel_called
        for call in (writer.pipeline.put(b"k", b"v"), writer.durable(9)):
            with pytest.raises(ClosedError):
                await call
        with pytest.raises(ClosedError, match="the database is closed: open it again"):
            writer.check_readable()
        again = await place.open(wal_enabled=wal_enabled)
        assert (again.last_seq == 2) == (kind is not FlushType.NONE)
        assert len(again.pipeline.buffers.active) == (2 if kind is FlushType.WAL and wal_enabled else 0)
        await again.close(FlushType.NONE)

    run_writers(scenario)


@pytest.mark.parametrize("is_frozen", [True, False])
@pytest.mark.parametrize("wal_enabled", [True, False])
def test_a_close_with_a_full_l0_keeps_all_rows(*, wal_enabled: bool, is_frozen: bool) -> None:
    """With a WAL they stay in it; without one they go to L0 in spite of its limit."""

    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open(wal_enabled=wal_enabled, l0_max_ssts=1, l0_max_ssts_per_key=1)
        await put(writer, b"a")
        await writer.flush(FlushType.MEMTABLE)
        await put(writer, b"b")
        if is_frozen:
            writer.pipeline.freeze()
            await anyio.sleep(1)
        with anyio.fail_after(600):
            await writer.close(FlushType.MEMTABLE)
        assert len(writer.manifest.current.tree.l0) == (1 if wal_enabled else 2)
        place.metrics = Metrics(db="db")
        again = await place.open(wal_enabled=wal_enabled, l0_max_ssts=1, l0_max_ssts_per_key=1)
        assert again.last_seq == 2
        assert place.gauges("db_l0_ssts") == [1 if wal_enabled else 2]
        await again.abort()

    run_writers(scenario)


def test_an_abort_writes_nothing() -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open()
        await put(writer, b"a")
        before = sorted(place.store.objects)
        await writer.abort()
        assert sorted(place.store.objects) == before
        with pytest.raises(ClosedError):
            await writer.durable(1)

    run_writers(scenario)


class SilentStore(MemoryStore):
    """A store that refuses manifests while it is ``silent``."""

    silent = False

    async def put(self, key: str, *args: Any, **options: Any) -> Any:
        if self.silent and "/manifest/" in key:
            raise UnavailableError("the store does not answer")
        return await super().put(key, *args, **options)


@pytest.mark.parametrize("kind", [FlushType.WAL, FlushType.MEMTABLE])
def test_a_close_does_not_wait_for_a_store_that_does_not_answer(kind: FlushType) -> None:
    """The rows are in the WAL for the next writer."""

    async def scenario(place: VirtualPlace) -> None:
        store = place.store = SilentStore()
        writer = await place.open()
        await put(writer, b"a")
        await writer.flush(FlushType.WAL)
        store.silent = True
        with anyio.fail_after(3600), pytest.raises(UnavailableError):
            await writer.close(kind)
        store.silent = False
        again = await place.open()
        assert again.last_seq == 1
        await again.abort()

    run_writers(scenario)


async def begun_scan(*, reverse: bool) -> tuple[shale.Db, Scan]:
    """Return a database, and a scan that has given its first row and prefetches the others."""
    db = await shale.Db.open("db", store=MemoryStore(), flush_interval=None)
    for number in range(300):
        await db.put(b"%04d" % number, bytes([number % 251]) * 1000)
    await db.flush("memtable")
    scan = db.scan(read_ahead_bytes=4096, reverse=reverse)
    assert len(await scan.next_batch(1)) == 1
    return db, scan


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_that_reads_on_after_a_failure_gets_its_error(*, reverse: bool) -> None:
    """The task group of its prefetches has ended."""

    async def fail() -> None:
        raise UnavailableError("mine")

    async def run() -> None:
        db, scan = await begun_scan(reverse=reverse)
        db._writer.host.group.start_soon(fail)
        for call in (lambda: db._writer.durable(1 << 60), lambda: scan.next_batch(300), db.close):
            with pytest.raises(UnavailableError, match="mine"):
                await call()

    anyio.run(run)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_that_reads_on_after_a_close_is_told(*, reverse: bool) -> None:
    """The task group of its prefetches has ended."""

    async def run() -> None:
        db, scan = await begun_scan(reverse=reverse)
        await db.close()
        with pytest.raises(ClosedError, match="the database is closed"):
            await scan.next_batch(300)

    anyio.run(run)


class GatedStore(MemoryStore):
    """A store whose reads of SSTs wait, once there is a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = anyio.Event()
        self.gate: anyio.Event | None = None

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        if "/compacted/" in key and self.gate is not None:
            self.asked.set()
            await self.gate.wait()
        return await super().get_range(key, start, end)


@pytest.mark.parametrize("end", ["close", "abort", "failure"])
def test_a_lookup_that_is_under_way_at_the_end_gets_its_value(tmp_path: Path, end: str) -> None:
    """The disk cache cannot write what it reads in the background any more."""

    async def run() -> None:
        store, found = GatedStore(), []
        options = {"store": store, "flush_interval": None}
        async with shale.Db.open("db", **options) as db:
            await db.put(b"k", b"value")
            await db.flush("memtable")
        db = await shale.Db.open("db", **options, disk_cache=DiskCacheOptions(str(tmp_path)), block_cache_bytes=1 << 20)
        writer, store.gate = db._writer, anyio.Event()

        async def look_up() -> None:
            found.append(await db.get(b"k"))

        async def fail() -> None:
            raise UnavailableError("mine")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look_up)
            await store.asked.wait()
            if end == "failure":
                writer.host.group.start_soon(fail)
                with pytest.raises(UnavailableError, match="mine"):
                    await writer.durable(1 << 60)
            else:
                await (db.close() if end == "close" else writer.abort())
            store.gate.set()
        assert found == [b"value"]
        if end == "failure":
            with pytest.raises(UnavailableError, match="mine"):
                await db.close()

    anyio.run(run)


@pytest.mark.parametrize("end", ["close", "abort"])
def test_the_end_frees_the_cache_that_databases_share(end: str) -> None:
    async def run() -> None:
        cache = shale.MemoryBudget(1 << 20)
        db = await shale.Db.open("db", store=MemoryStore(), cache=cache, flush_interval=None)
        await db.put(b"k", b"value")
        await db.flush("memtable")
        assert await db.get(b"k") == b"value"
        assert cache.used_bytes > 0
        await (db.close() if end == "close" else db._writer.abort())
        assert cache.used_bytes == 0

    anyio.run(run)
