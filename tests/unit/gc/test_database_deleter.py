"""``DatabaseDeleter`` alone: when it stops the tasks, what it deletes, and the errors that a destroy explains."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest

from shale.errors import LatestRecordMissing, ProtocolPanic, ShaleError, UnavailableError
from shale.format.names import deleting_key, wal_key
from shale.gc.database import GcDatabase
from shale.gc.database_deleter import DatabaseDeleter
from shale.gc.hard_destroy import destroy
from shale.gc.metrics import GcMetrics
from shale.gc.options import DELETE_GRACE_PERIOD_S, GcOptions, TaskOptions
from shale.gc.passes import PROGRESS_S, GcProgress
from shale.gc.soft_destroy import DeletionPhase, destroy_later
from shale.protocol.options import ProtocolOptions
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule, StoreRequest
from shale.types import Manifest
from tests.clocks import ManualClock
from tests.unit.gc.destroy_harness import Harness
from tests.unit.protocol.conftest import run

GRACE_S = 100.0
MISSING, PANIC = LatestRecordMissing("no manifest"), ProtocolPanic("the boundary went back")


def faulty(harness: Harness) -> FaultyStore:
    return FaultyStore(harness.store, harness.env.rng)


async def due_for_deletion() -> Harness:
    """Create a database that was softly destroyed before the grace period."""
    harness = Harness()
    await harness.make()
    await destroy_later(harness.target())
    harness.clock.sleep(2 * GRACE_S)
    return harness


def deleter(
    harness: Harness, *, store: FaultyStore | None = None, grace_s: float | None = GRACE_S, interval_s: float = 0.001
) -> DatabaseDeleter:
    """Return a deleter of ``db``, as a collector creates it; ``interval_s`` applies to all its tasks."""
    metrics = Metrics()
    database = GcDatabase.at(
        store if store is not None else harness.store, "db", harness.env, metrics, ProtocolOptions()
    )
    task = TaskOptions(interval_s=interval_s)
    options = GcOptions(manifest=task, wal=task, compacted=task, compactions=task, delete_grace_period_s=grace_s)
    return DatabaseDeleter(database, lambda: options, GcMetrics(metrics))


def test_a_single_run_deletes_after_the_grace_period_and_not_before() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        one = deleter(harness)
        assert not await one.delete_if_due()
        assert one.state.phase is DeletionPhase.ALIVE
        assert one.progress == GcProgress(), "nothing is deleted so far"
        mark = await destroy_later(harness.target())
        before = harness.listing()
        harness.clock.ms = mark.destroyed_at_s * 1000 + int(GRACE_S * 1000)
        assert not await one.delete_if_due()
        assert (one.state.phase, one.state.mark) == (DeletionPhase.WAITING, mark)
        assert harness.listing() == before
        harness.clock.ms += 1
        assert await one.delete_if_due()
        assert one.state.phase is DeletionPhase.GONE
        assert harness.listing() == []

    run(main)


def test_the_wal_in_a_store_of_its_own_is_deleted_too_and_its_fences_are_counted_apart() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.manifests().create_new(Manifest())
        await harness.wal_store.put(wal_key("db", 1), b"rows")
        await destroy_later(harness.target(wal=True))
        harness.clock.sleep(2 * GRACE_S)
        metrics = Metrics()
        database = GcDatabase.at(
            harness.store, "db", harness.env, metrics, ProtocolOptions(), wal_store=harness.wal_store
        )
        options = GcOptions(delete_grace_period_s=GRACE_S)
        assert await DatabaseDeleter(database, lambda: options, GcMetrics(metrics)).delete_if_due()
        assert harness.listing() == []
        assert harness.listing(harness.wal_store) == []
        value = metrics.registry.get_sample_value
        for resource, size in (("wal", 4), ("wal_fence", 0)):
            labels = {"db": "", "resource": resource}
            assert value("slatedb_gc_deleted_objects_total", labels) == 1
            assert value("slatedb_gc_deleted_bytes_total", labels) == size

    run(main)


def test_progress_counts_every_object_but_the_marker_of_the_deletion() -> None:
    async def main() -> None:
        harness = await due_for_deletion()
        store, sizes = faulty(harness), list[int]()

        def count(request: StoreRequest) -> None:
            if request.op == "delete" and request.key != deleting_key("db"):
                sizes.append(len(harness.store.objects[request.key].data))

        store.observe(count)
        one = deleter(harness, store=store)
        assert await one.delete_if_due()
        assert len(sizes) > 10
        assert one.progress.deleted == one.progress.listed == one.progress.planned == len(sizes)
        assert one.progress.deleted_bytes == sum(sizes)

    run(main)


def test_without_a_grace_period_nothing_is_looked_at() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await destroy_later(harness.target())
        harness.clock.sleep(10 * DELETE_GRACE_PERIOD_S)
        store = faulty(harness)
        store.freeze()
        with anyio.fail_after(60):
            assert not await deleter(harness, store=store, grace_s=None).delete_if_due()
        assert harness.listing() != []

    run(main)


def test_the_watch_stops_all_tasks_once_it_is_due_and_deletes_nothing_itself() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await destroy_later(harness.target())
        before, one = harness.listing(), deleter(harness)
        with anyio.fail_after(60), anyio.CancelScope() as tasks:
            async with anyio.create_task_group() as group:
                group.start_soon(one.watch, tasks)
                while one.state.phase is not DeletionPhase.WAITING:
                    await anyio.lowlevel.checkpoint()
                assert not tasks.cancel_called
                harness.clock.sleep(2 * GRACE_S)
                await anyio.sleep_forever()
        assert one.state.phase is DeletionPhase.DUE
        assert harness.listing() == before
        await one.finish()
        assert harness.listing() == []

    run(main)


def test_a_look_that_fails_is_tried_again_at_the_next_interval() -> None:
    async def main() -> None:
        harness = await due_for_deletion()
        store = faulty(harness)
        store.add(Rule(fault=Fault.BEFORE, times=2))
        one = deleter(harness, store=store)
        with anyio.fail_after(60), anyio.CancelScope() as tasks:
            await one.watch(tasks)
        assert tasks.cancel_called
        assert one.state.phase is DeletionPhase.DUE

    run(main)


def test_the_end_of_a_watch_that_was_stopped_deletes_nothing() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        before = harness.listing()
        await deleter(harness).finish()
        assert harness.listing() == before

    run(main)


def test_a_deletion_that_fails_waits_and_is_finished_by_the_next_one() -> None:
    async def main() -> None:
        harness = await due_for_deletion()
        store = faulty(harness)
        one = deleter(harness, store=store)
        with anyio.CancelScope() as tasks:
            await one.watch(tasks)
        store.add(Rule(fault=Fault.BEFORE, op="delete", key_contains="/manifest/"))
        await one.finish()
        assert one.state.phase is DeletionPhase.DUE
        assert harness.listing() != []
        await one.finish()
        assert one.state.phase is DeletionPhase.GONE
        assert harness.listing() == []

    run(main)


def test_an_interval_passes_after_a_failure_and_none_after_the_end() -> None:
    async def main() -> None:
        harness = await due_for_deletion()
        store = faulty(harness)
        one = deleter(harness, store=store, interval_s=3600)
        await one.watch(anyio.CancelScope())
        store.add(Rule(fault=Fault.BEFORE, op="delete", key_contains="/manifest/"))
        ends: list[DeletionPhase] = []

        async def finish() -> None:
            await one.finish()
            ends.append(one.state.phase)

        async with anyio.create_task_group() as group:
            group.start_soon(finish)
            await anyio.wait_all_tasks_blocked()
            assert harness.listing() != []
            assert ends == [], "it waits"
            group.cancel_scope.cancel()
        with anyio.fail_after(60):
            await one.finish()
        assert one.state.phase is DeletionPhase.GONE

    run(main)


def test_a_missing_manifest_is_explained_by_a_marker_only() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        one = deleter(harness)
        assert not await one.is_caused_by_deletion(MISSING)
        await destroy_later(harness.target())
        assert await one.is_caused_by_deletion(MISSING)
        assert not await one.is_caused_by_deletion(PANIC)  # the deletion itself has not begun

    run(main)


def test_a_panic_is_explained_by_a_deletion_under_way_or_ended() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        one = deleter(harness)
        assert not await one.is_caused_by_deletion(PANIC)
        await harness.store.put(deleting_key("db"), b"")
        assert await one.is_caused_by_deletion(PANIC)
        await harness.store.delete(deleting_key("db"))
        await destroy(harness.target())
        assert await one.is_caused_by_deletion(PANIC)

    run(main)


def test_while_the_store_cannot_be_asked_only_a_panic_is_believed() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        store = faulty(harness)
        store.add(Rule(fault=Fault.BEFORE, times=1000))
        one = deleter(harness, store=store)
        assert await one.is_caused_by_deletion(MISSING)
        assert not await one.is_caused_by_deletion(PANIC)
        with pytest.raises(UnavailableError):
            await one.delete_if_due()

    run(main)


@pytest.mark.parametrize(
    ("intervals_s", "shortest_s"), [((600, 60, 300), 60), ((60, 600, 300), 60), ((), TaskOptions().interval_s)]
)
def test_the_marker_is_looked_at_as_often_as_the_most_frequent_task_runs(
    intervals_s: tuple[float, ...], shortest_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits are recorded in place of the time that they would take."""

    async def main() -> None:
        harness = Harness()
        await harness.make()
        metrics = Metrics()
        database = GcDatabase.at(harness.store, "db", harness.env, metrics, ProtocolOptions())
        names = ("manifest", "wal", "compacted", "compactions", "detach", "staged", "wal_fence")
        tasks = dict.fromkeys(names) | dict(
            zip(names, (TaskOptions(interval_s=each) for each in intervals_s), strict=False)
        )
        one = DatabaseDeleter(database, lambda: GcOptions(**tasks), GcMetrics(metrics))  # type: ignore[arg-type]
        waits: list[float] = []

        async def wait(seconds: float) -> None:
            waits.append(seconds)
            raise ProtocolPanic("the test ends here")

        monkeypatch.setattr("shale.gc.database_deleter.anyio.sleep", wait)
        with pytest.raises(ProtocolPanic, match="the test ends here"):
            await one.watch(anyio.CancelScope())
        assert waits == [shortest_s]

    run(main)


def test_the_time_of_the_marker_is_a_metric() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.manifests().create_new(Manifest())
        metrics = Metrics()
        database = GcDatabase.at(harness.store, "db", harness.env, metrics, ProtocolOptions())
        one = DatabaseDeleter(database, GcOptions, GcMetrics(metrics))

        def marked_s() -> float | None:
            return metrics.registry.get_sample_value("slatedb_db_destroyed_timestamp_seconds", {"db": ""})

        await one.delete_if_due()
        assert marked_s() == 0
        mark = await destroy_later(harness.target())
        await one.delete_if_due()
        assert marked_s() == mark.destroyed_at_s

    run(main)


def test_a_panic_ends_the_watch_and_the_deletion() -> None:
    class Panicking(MemoryStore):
        async def get(self, key: str) -> Any:
            raise ProtocolPanic("the store lies")

    async def main() -> None:
        harness = await due_for_deletion()
        one = deleter(harness)
        with anyio.fail_after(60):
            await one.watch(anyio.CancelScope())
        assert one.state.phase is DeletionPhase.DUE
        store = Panicking(harness.clock)
        store.objects = harness.store.objects
        harness.store = store
        panicking = deleter(harness)
        with pytest.raises(ProtocolPanic, match="the store lies"), anyio.fail_after(60):
            await panicking.watch(anyio.CancelScope())
        panicking.state = one.state
        with pytest.raises(ProtocolPanic, match="the store lies"), anyio.fail_after(60):
            await panicking.finish()

    run(main)


@pytest.mark.parametrize("takes_s", [PROGRESS_S, PROGRESS_S / 2, 0])
def test_progress_of_a_deletion_is_logged_at_intervals(takes_s: float, caplog: pytest.LogCaptureFixture) -> None:
    """Not once for each object: the times at which it may be logged are those between two requests."""

    class Slow(MemoryStore):
        clock: ManualClock
        sizes: list[int]

        async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
            self.clock.sleep(takes_s)
            self.sizes.append(len(keys))
            return await super().delete_many(keys)

    async def main() -> list[int]:
        harness = Harness()
        store = Slow(harness.clock)
        store.clock, store.sizes = harness.clock, []
        harness.store = store
        await harness.manifests().create_new(Manifest())
        for number in (1, 2, 3):
            await store.put(wal_key("db", number), b"rows")
        await destroy_later(harness.target())
        harness.clock.sleep(2 * GRACE_S)
        assert await deleter(harness).delete_if_due()
        return store.sizes

    with caplog.at_level(logging.INFO, "shale"):
        sizes = run(main)
    assert max(sizes) > 1
    logged = [line for record in caplog.records if "gc.progress" in (line := record.getMessage())]
    assert len(logged) == int(len(sizes) * takes_s / PROGRESS_S)
