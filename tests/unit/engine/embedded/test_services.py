"""A compactor and a collector beside a writer: what they do, to whom they give way, and what they cost."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import anyio
import pytest

import shale
from shale.concurrency.signal import Signal
from shale.engine.embedded.work import L0Work, fullest_l0
from shale.env import Env
from shale.errors import FencedError, WriteStalled
from shale.store.memory import MemoryStore
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.testing.faulty_store import FaultyStore, Rule
from shale.types import Tree, Ulid
from shale.types.writer_sign import embedded_compactor
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.live_coordinator import LiveCoordinator
from shale_compactor.coordinator.options import CoordinatorOptions
from tests.unit.engine.waiting import until

WAIT_S = 20
SMALL: dict[str, Any] = {"l0_sst_size_bytes": 2000, "max_unflushed_bytes": 20_000, "flush_interval": 0}


def run(scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    anyio.run(scenario, MemoryStore())


async def flush_rows(db: shale.Db, name: str, count: int = 1) -> None:
    """Make ``count`` L0s."""
    for number in range(count):
        await db.put(b"%s-%d" % (name.encode(), number), b"v")
        await db.flush("memtable")


def l0s(db: shale.Db) -> int:
    return fullest_l0(db.status.manifest)


def told(db: shale.Db) -> int | None:
    """Return the epoch of the embedded compactor, as the writer's sign tells it."""
    embedded = embedded_compactor(db.status.manifest)
    return None if embedded is None else embedded.epoch


def test_more_rows_than_l0_has_room_for_are_written_without_a_daemon() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("db", store=store, compactor=True, stall_timeout=WAIT_S, **SMALL) as db:
            for number in range(1500):
                await db.put(b"%05d" % number, bytes(100))
            await until(lambda: l0s(db) < 4 and bool(db.status.manifest.tree.compacted))
            assert len([row async for row in db.scan()]) == 1500
            assert db.status.problem is None

    run(scenario)


def test_programs_that_open_write_and_close_never_fill_l0() -> None:
    async def scenario(store: MemoryStore) -> None:
        for number in range(24):
            async with shale.Db.open("db", store=store, compactor=True) as db:
                await db.put(b"%05d" % number, b"v")
            assert l0s(db) <= 5, "the close flushes, and the next program compacts"
        async with shale.Db.open("db", store=store, compactor=False) as db:
            assert len([row async for row in db.scan()]) == 24

    run(scenario)


def test_without_a_compactor_a_write_says_that_it_stalls() -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await shale.Db.open("db", store=store, compactor=False, stall_timeout="50ms", **SMALL)
        with (
            anyio.fail_after(WAIT_S),
            pytest.raises(WriteStalled, match=r"waited for 0\.05 s.* L0 is full, \d+ of \d+ .*start `shale compactor`"),
        ):
            await write_for_ever(db)
        await db.close("wal")

    run(scenario)


async def write_for_ever(db: shale.Db) -> None:
    while True:
        await db.put(b"k", bytes(500))


def test_a_program_that_makes_few_l0s_makes_no_request_for_it() -> None:
    async def scenario(_: MemoryStore) -> None:
        requests = []
        for on in (False, True):
            metrics = Metrics()
            async with shale.Db.open("db", store=MemoryStore(), metrics=metrics, compactor=on, gc=on) as db:
                await flush_rows(db, "a", 3)
            requests.append(requests_of(metrics))
        assert requests[0] == requests[1]

    run(scenario)


def requests_of(metrics: Metrics) -> float:
    return sum(
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "slatedb_object_store_requests_total"
    )


@asynccontextmanager
async def daemon(store: ObjectStore, **options: Any) -> AsyncIterator[Compactor]:
    """Run a compactor of its own process."""
    often = CoordinatorOptions(poll_interval_s=0.05, commit_compacted_interval_s=0.05)
    compactor = Compactor(store, "db", Env.system(), CompactorOptions(coordinator=often, **options))
    await compactor.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compactor.run)
        yield compactor
        tasks.cancel_scope.cancel()


def test_a_compactor_of_its_own_process_is_left_alone() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("db", store=store, compactor=True) as db:
            async with daemon(store, embedded_worker=False) as other:
                epoch = other.coordinator.manifest.epoch
                await flush_rows(db, "a", 5)
                await until(lambda: other.coordinator.view.has_active)
                await db.refresh()
                assert (db.status.manifest.compactor_epoch, l0s(db)) == (epoch, 5)
            await flush_rows(db, "b")
            await until(lambda: l0s(db) < 4)

    run(scenario)


def test_a_compactor_that_starts_later_takes_over_without_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("db", store=store, compactor=True) as db:
            await flush_rows(db, "a", 4)
            await until(lambda: l0s(db) == 0)
            held = db.status.manifest.compactor_epoch
            assert told(db) == held
            async with daemon(store) as other:
                assert other.coordinator.manifest.epoch == held + 1
                await flush_rows(db, "b", 4)
                await until(lambda: l0s(db) == 0)
                assert db.status.manifest.compactor_epoch == held + 1
            assert db.status.problem is None
            async with daemon(store):
                with pytest.raises(LiveCoordinator):
                    await Compactor(store, "db", Env.system(), CompactorOptions()).start()
            assert not [each for each in caplog.records if each.levelname == "ERROR"]
            assert "compactor.fenced" not in caplog.text

    run(scenario)


def test_a_fenced_writer_takes_its_services_with_it() -> None:
    async def scenario(store: MemoryStore) -> None:
        old = await shale.Db.open("db", store=store, compactor=True)
        await flush_rows(old, "a", 4)
        await until(lambda: l0s(old) == 0)
        async with shale.Db.open("db", store=store, compactor=True) as new:
            with pytest.raises(FencedError):
                await old.refresh()
            await flush_rows(new, "b", 8)
            await until(lambda: l0s(new) < 4)
        with pytest.raises(FencedError):
            await old.close()

    run(scenario)


def test_a_failure_of_the_compactor_does_not_stop_the_writer(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("db", store=store, compactor=True) as db:
            await flush_rows(db, "a", 3)
            for meta in await store.list("db/compacted/"):
                await store.delete(meta.key)
            await flush_rows(db, "b")
            await until(lambda: "compaction.failed" in caplog.text)
            await db.put(b"a", b"b")
            await db.flush("memtable")
            assert db.status.problem is None

    run(scenario)


def test_a_close_does_not_wait_for_a_long_compaction() -> None:
    async def scenario(store: MemoryStore) -> None:
        db, _ = await open_amid_long_compaction(store)
        with anyio.fail_after(WAIT_S):
            await db.close()
        async with shale.Db.open("db", store=store, compactor=True) as db:
            await until(lambda: l0s(db) == 0)

    run(scenario)


def test_a_program_that_was_killed_compacts_at_once_when_it_is_started_again() -> None:
    """Neither the dead process's epoch nor its job, whose heartbeat is fresh, is waited for."""

    async def scenario(store: MemoryStore) -> None:
        dead, killed = await open_amid_long_compaction(store)
        killed.freeze()
        async with shale.Db.open("db", store=store, compactor=True) as db:
            held = db.status.manifest.compactor_epoch
            assert told(db) == held > 0, "the claim of a writer inherits what is known of the compactor"
            await until(lambda: l0s(db) == 0)
            assert told(db) == db.status.manifest.compactor_epoch == held + 1
        killed.thaw()
        with pytest.raises(FencedError):
            await dead.close()

    run(scenario)


async def open_amid_long_compaction(store: MemoryStore) -> tuple[shale.Db, FaultyStore]:
    """Return a writer whose compaction waits for its first input, and its connection."""
    link = FaultyStore(store, Random(1))
    db = await shale.Db.open("db", store=link, compactor=True)
    await flush_rows(db, "a", 3)
    link.add(Rule(op="get_range", key_contains="compacted/", times=100, delay_before_s=60))
    started: list[str] = []
    link.observe(lambda request: started.append(request.key) if request.op == "get_range" else None)
    await flush_rows(db, "b")
    await until(lambda: bool(started))
    return db, link


def test_the_compactor_of_a_replaced_writer_claims_no_epoch() -> None:
    async def scenario(store: MemoryStore) -> None:
        old = await shale.Db.open("db", store=store, compactor=False)
        async with shale.Db.open("db", store=store, compactor=True) as new:
            of_old = CoordinatorOptions(writer_epoch=old.status.manifest.writer_epoch)
            late = Compactor(store, "db", Env.system(), CompactorOptions(coordinator=of_old))
            with pytest.raises(FencedError, match="of this process, was superseded"):
                await late.start()
            assert (told(new), new.status.manifest.compactor_epoch) == (None, 0)
        with pytest.raises(FencedError):
            await old.close()

    run(scenario)


@pytest.mark.parametrize("collects", [True, False])
def test_inputs_are_kept_by_the_collector_of_the_process_or_else_by_a_checkpoint(collects: bool) -> None:
    """A checkpoint would keep them for a second more, in a directory that grows."""

    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("db", store=store, compactor=True, gc=collects) as db:
            await flush_rows(db, "a", 4)
            await until(lambda: l0s(db) == 0)
            of_compactor = [each for each in db.status.manifest.checkpoints if each.writer_epoch is None]
            assert bool(of_compactor) is not collects

    run(scenario)


def test_a_merge_of_runs_is_seen_as_a_compaction() -> None:
    """Its inputs are obsolete, though no L0 is gone."""

    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("db", store=store, compactor=True) as db:
            await flush_rows(db, "a", 4)
            await until(lambda: l0s(db) == 0)
            before = db.status.manifest
            shown = [before]
            changed = Signal()
            work = L0Work(lambda: shown[0], changed, 2, 8)
            seen: list[frozenset[Ulid]] = []

            async def wait() -> None:
                seen.append(await work.wait_compacted())

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                for state in (replace(before, writer_epoch=99), replace(before, tree=Tree())):
                    await anyio.wait_all_tasks_blocked()
                    assert not seen
                    shown[0] = state
                    changed.notify()
            (run,) = before.tree.compacted
            assert seen == [frozenset(view.sst.id for view in run.ssts)]

    run(scenario)


def test_work_is_offered_once_for_each_state() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("db", store=store) as db:
            work = L0Work(lambda: db.status.manifest, Signal(), 2, 8)
            await flush_rows(db, "a", 2)
            with anyio.fail_after(WAIT_S):
                await work.wait()
            with anyio.move_on_after(0) as scope:
                await work.wait()
            assert scope.cancelled_caught, "nothing has changed"

    run(scenario)
