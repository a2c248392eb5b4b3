"""A writer alone, in virtual time: what waits for what, how it flushes and closes, and what a failure ends."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.lowlevel
import pytest

import shale
from shale.engine.options import FlushType
from shale.engine.write.batch import WriteBatch
from shale.env import Env, InlineCpu
from shale.errors import FencedError, ProtocolPanic, ShaleError, UnavailableError, WalDisabled
from shale.kernels.rows import Rows
from shale.protocol.manifest_store import WRITER, FenceableManifest, ManifestStore
from shale.sst.disk_cache import DiskCacheOptions
from shale.store.memory import MemoryStore
from shale.store.port import GetResult
from shale.types import KeyRange
from tests.unit.engine.write.timing import VirtualPlace, put, run_writers

T = TypeVar("T")


def test_a_caller_that_waits_gets_its_flush_at_once() -> None:
    """Without the caller, an adaptive writer flushes when its idle interval is over."""

    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open(flush_interval_s=0.0)
        begun = place.loop.time()
        await writer.durable(await put(writer, b"k"))
        assert (place.loop.time(), writer.durability.durable_seq) == (begun, 1)
        requests = place.counter("slatedb_wal_flush_requests_total")
        await writer.durable(1)
        assert place.counter("slatedb_wal_flush_requests_total") == requests, "nothing is left to flush"
        await put(writer, b"k")
        await writer.durability.wait_durable(2)
        assert place.loop.time() > begun
        await writer.close(FlushType.NONE)

    run_writers(scenario)


def test_without_a_wal_a_write_is_durable_with_its_flush() -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open(wal_enabled=False)
        seq = await put(writer, b"k")
        with pytest.raises(WalDisabled):
            await writer.flush(FlushType.WAL)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.durable, seq)
            await anyio.sleep(1)
            assert writer.durability.durable_seq == 0
            await writer.flush(FlushType.MEMTABLE)
        assert writer.durability.durable_seq == 1
        await writer.close(FlushType.MEMTABLE)

    run_writers(scenario)


@pytest.mark.parametrize("kind", FlushType)
def test_what_a_flush_leaves_behind(kind: FlushType) -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open()
        await put(writer, b"a", b"b")
        before = writer.manifest.id
        await writer.flush(kind)
        reached = {FlushType.NONE: (0, 0), FlushType.WAL: (2, 0), FlushType.MEMTABLE: (2, 2)}[kind]
        assert (writer.durability.durable_seq, writer.durability.flushed_seq) == reached
        assert len(writer.manifest.current.tree.l0) == (kind is FlushType.MEMTABLE)
        assert (writer.manifest.id > before) == (kind is FlushType.MEMTABLE)
        assert writer.flushes == 1
        assert place.counter("slatedb_memtable_flush_flush_requests_total") == 1
        await writer.close(FlushType.NONE)

    run_writers(scenario)


@pytest.mark.parametrize("kind", [FlushType.WAL, FlushType.MEMTABLE])
def test_a_flush_does_not_wait_for_a_commit_that_was_refused(kind: FlushType) -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open(enforce_visible_range=KeyRange.half_open(b"a", b"c"))
        await put(writer, b"a")
        batch = WriteBatch()
        batch.put(b"x", b"value")
        with pytest.raises(ShaleError, match="outside"):
            await writer.pipeline.write(batch)
        assert writer.last_seq == 2
        with anyio.fail_after(60):
            await writer.flush(kind)
        with anyio.fail_after(60):
            await writer.close(kind)

    run_writers(scenario)


def test_the_clock_of_a_database_never_shows_less_than_its_newest_commit() -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open()
        assert writer.clock_ms() == place.env.clock.now_ms()
        writer.pipeline.clock.last_tick = place.env.clock.now_ms() + 5
        assert writer.clock_ms() == place.env.clock.now_ms() + 5
        await writer.abort()

    run_writers(scenario)


def test_sequence_numbers_of_flushed_and_of_unflushed_rows_are_known_by_time() -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open()
        seconds = []
        for number in range(3):
            await put(writer, b"a")
            seconds.append(place.env.clock.now_ms() // 1000)
            if number == 0:
                await writer.flush(FlushType.MEMTABLE)
            await anyio.sleep(61)
        assert writer.sequence_tracker().points == list(zip((1, 2, 3), seconds, strict=True))
        await writer.abort()

    run_writers(scenario)


def test_replayed_parts_are_merged_after_a_second() -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open()
        for key in (b"a", b"b", b"c"):
            await writer.pipeline.put(key, bytes(2 << 20))
            await writer.flush(FlushType.WAL)
        await writer.abort()
        again = await place.open()
        table = again.pipeline.buffers.active
        begun = place.loop.time()
        assert len(table.columns) == 3
        await anyio.sleep(0.9)
        assert len(table.columns) == 3
        await anyio.sleep(0.2)
        assert (len(table.columns), len(table)) == (1, 3)
        assert place.loop.time() < begun + 1.5
        await again.abort()

    run_writers(scenario)


def test_a_fenced_writer_is_counted_once_and_acknowledges_nothing_more() -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open()
        await put(writer, b"a")
        assert writer.views.fast_point is not None
        writer.fail(FencedError("a newer writer claimed"))
        writer.fail(UnavailableError("later"))
        writer.fail(FencedError("later still"))
        assert place.counter("slatedb_fenced_total", component="writer") == 1
        assert writer.views.fast_point is None
        for call in (
            lambda: writer.durable(1),
            lambda: writer.pipeline.put(b"k", b"v"),
            lambda: writer.flush(FlushType.WAL),
        ):
            with pytest.raises(FencedError, match="a newer writer claimed"):
                await call()
        with pytest.raises(FencedError):
            writer.check_readable()
        with pytest.raises(FencedError):
            await writer.close(FlushType.WAL)

    run_writers(scenario)


def test_a_failure_that_is_no_fence_is_not_counted_as_one() -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open()
        writer.fail(UnavailableError("the store is away"))
        assert place.counter("slatedb_fenced_total", component="writer") == 0
        before = sorted(place.store.objects)
        with pytest.raises(UnavailableError):
            await writer.close(FlushType.NONE)
        assert sorted(place.store.objects) == before

    run_writers(scenario)


class BrokenCpu(InlineCpu):
    """Runs work until it is told to fail."""

    error: Exception | None = None

    async def run(self, work: Callable[[], T]) -> T:
        if self.error is not None:
            raise self.error
        return work()


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (UnavailableError("mine"), UnavailableError, "mine"),
        (RuntimeError("mine"), ProtocolPanic, "a background task failed"),
    ],
)
def test_the_first_error_of_a_task_ends_the_writer(error: Exception, kind: type[ShaleError], text: str) -> None:
    async def scenario(place: VirtualPlace) -> None:
        cpu = BrokenCpu()
        place.env = Env(place.env.clock, place.env.rng, cpu)
        writer = await place.open()
        await put(writer, b"a")
        problems: list[ShaleError | None] = []

        async def other_task() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                problems.append(writer.durability.problem)

        writer.host.group.start_soon(other_task)
        await anyio.lowlevel.checkpoint()
        cpu.error = error
        with pytest.raises(kind, match=text):
            await writer.flush(FlushType.MEMTABLE)
        assert isinstance(writer.durability.problem, kind)
        await anyio.sleep(0.01)
        assert problems == ([error] if isinstance(error, ShaleError) else [None]), "set before other tasks are ended"
        with pytest.raises(kind):
            await put(writer, b"b")
        with pytest.raises(kind):
            await writer.close(FlushType.MEMTABLE)

    run_writers(scenario)


def test_a_manifest_that_changes_is_told_to_subscribers_and_shown() -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open()
        await put(writer, b"a")
        woken: list[int] = []

        async def subscribe() -> None:
            while True:
                await writer.durability.status_changed.wait()
                woken.append(len(writer.manifest.current.tree.l0))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscribe)
            await writer.flush(FlushType.WAL)
            await writer.flush(FlushType.MEMTABLE)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert 1 in woken
        assert place.gauges("db_l0_ssts") == [1]
        assert place.counter("slatedb_memtable_flush_freezes_total") == 1
        assert [len(writer.views.view.tables), len(writer.manifest.current.tree.l0)] == [1, 1]
        await writer.abort()

    run_writers(scenario)


def test_the_listener_of_a_writer_without_a_wal_has_nothing_to_flush() -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open(wal_enabled=False)
        writer.on_rows_pending()
        writer.on_wal_file_pending()
        writer.on_wal_flush_requested()
        assert (writer.wal, writer.pipeline.buffers.wal) == (None, None)
        place.metrics.refresh()
        assert place.gauges("wal_buffer_bytes", "wal_puts_in_flight") == [0, 0]
        await writer.abort()

    run_writers(scenario)


@pytest.mark.parametrize("interval_s", [None, 0.5])
def test_rows_are_flushed_after_the_interval_and_full_files_at_once(interval_s: float | None) -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open(flush_interval_s=interval_s, wal_flush_bytes=1000)
        await put(writer, b"small")
        await anyio.sleep(0.4)
        assert writer.durability.durable_seq == 0
        await anyio.sleep(0.2)
        assert writer.durability.durable_seq == (0 if interval_s is None else 1)
        await writer.pipeline.put(b"large", bytes(1000))
        await anyio.lowlevel.checkpoint()
        await anyio.sleep(0.001)
        assert writer.durability.durable_seq == 2
        await writer.abort()

    run_writers(scenario)


def test_a_full_memtable_is_flushed_by_itself_together_with_its_wal_file() -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open(l0_sst_size_bytes=1000)
        await writer.pipeline.put(b"large", bytes(1000))
        await anyio.sleep(0.1)
        assert (writer.durability.durable_seq, writer.durability.flushed_seq) == (1, 1)
        assert isinstance(writer.views.view.tables[0].rows(), Rows)
        await writer.abort()

    run_writers(scenario)


class SlowWal(MemoryStore):
    """A store whose reads of WAL files take a minute."""

    async def get(self, key: str) -> GetResult | None:
        await anyio.sleep(60 if "/wal/" in key else 0)
        return await super().get(key)


def test_a_writer_that_is_fenced_during_its_replay_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay reads the fence of the writer before, after the group of the tasks has ended."""
    monkeypatch.setattr("shale.engine.wal.replay.KEPT_BYTES_MAX", 0)

    async def scenario(place: VirtualPlace) -> None:
        place.store = SlowWal()
        await (await place.open()).abort()

        async def take_over() -> None:
            await anyio.sleep(90)
            stored = await ManifestStore(place.store, "db", place.env).load()
            assert stored.value.writer_epoch == 2
            await FenceableManifest.claim(stored, WRITER)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_over)
            with pytest.raises(FencedError, match="epoch 2 was superseded by 3"):
                await place.open(manifest_poll_interval_s=1.0)

    run_writers(scenario)


def files_in(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*"))


@pytest.mark.parametrize("cache_on_flush", [False, True])
def test_a_flush_fills_the_disk_cache_if_it_shall(tmp_path: Path, *, cache_on_flush: bool) -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open(disk_cache=DiskCacheOptions(str(tmp_path), cache_on_flush=cache_on_flush))
        await put(writer, b"a")
        before = files_in(tmp_path)
        await writer.flush(FlushType.MEMTABLE)
        assert (files_in(tmp_path) != before) is cache_on_flush
        await writer.abort()

    run_writers(scenario)


class SlowDisk(InlineCpu):
    """Work that adds files to a directory takes a minute."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def run(self, work: Callable[[], T]) -> T:
        before = files_in(self.directory)
        result = work()
        if files_in(self.directory) != before:
            await anyio.sleep(60)
        return result


def test_a_lookup_does_not_wait_until_the_disk_cache_has_written_what_it_read(tmp_path: Path) -> None:
    async def scenario(place: VirtualPlace) -> None:
        writer = await place.open()
        await put(writer, b"a")
        await writer.flush(FlushType.MEMTABLE)
        await writer.abort()
        env = Env(place.env.clock, place.env.rng, SlowDisk(tmp_path))
        disk = DiskCacheOptions(str(tmp_path))
        async with shale.Db.open("db", store=place.store, env=env, disk_cache=disk, block_cache_bytes=1 << 20) as db:
            begun, before = place.loop.time(), files_in(tmp_path)
            assert await db.get(b"a") == b"value"
            assert place.loop.time() < begun + 60
            await anyio.sleep(60)
            assert files_in(tmp_path) != before

    run_writers(scenario)
