"""The passes of a collector: when they run, what they report, and what ends them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import anyio
import pytest

from shale.errors import (
    InvalidRequestError,
    LatestRecordMissing,
    ProtocolPanic,
    UnavailableError,
)
from shale.format.names import (
    boundary_key,
    wal_key,
)
from shale.gc.collector import Collector
from shale.gc.hard_destroy import DestroyTarget
from shale.gc.options import DELETE_GRACE_PERIOD_S, GcOptions, Task, TaskOptions
from shale.gc.soft_destroy import DeletionPhase, destroy_later
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.store.memory import MemoryStore
from shale.store.port import ObjectMeta
from shale.telemetry.metrics import Metrics
from shale.testing.virtual_loop import VirtualLoop
from shale.types import (
    Manifest,
    WalId,
)
from tests.clocks import ManualClock
from tests.unit.engine.write.timing import in_virtual_time, virtual_env
from tests.unit.gc.passes.collector_world import AGE_S, OPTIONS, World, until, with_wal_elsewhere
from tests.unit.protocol.conftest import run


def test_a_pass_reports_its_time_and_result() -> None:
    class Slow(MemoryStore):
        clock: ManualClock

        async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
            if prefix == "db/wal/":
                self.clock.sleep(3)
            async for page in super().list_pages(prefix, after=after):
                yield page

    async def main() -> None:
        world = World(Slow())
        world.store.clock = world.clock  # type: ignore[attr-defined]
        await world.write(Manifest())
        collector = world.collector()
        running: list[bool] = []
        state = collector.states[Task.WAL]
        state.last_error = "an earlier one"

        async def notice(_task: Task, keys: Sequence[str]) -> Sequence[str]:
            running.append(state.is_running)
            return keys

        latest = Manifest(replay_after_wal_id=WalId(5), next_wal_sst_id=WalId(6))
        await world.write(latest)
        await world.store.put(wal_key("db", 1), b"x")
        world.clock.ms = max(world.clock.ms, world.env.clock.now_ms()) + 200_000
        collector.reconfigure(replace(OPTIONS, filter=notice, wal=TaskOptions(min_age_s=0)))
        world.store.objects[wal_key("db", 1)] = replace(
            world.store.objects[wal_key("db", 1)], meta=ObjectMeta(wal_key("db", 1), 1, 0)
        )
        await collector.sweep(Task.WAL)
        assert running == [True]
        assert (state.is_running, state.last_error, state.last_success_ms) == (False, None, world.clock.ms)
        labels = {"resource": "wal"}
        assert world.value("gc_runs_total", result="ok", **labels) == 1
        assert world.value("gc_run_duration_seconds_sum", **labels) == 3
        assert world.value("gc_last_success_timestamp_seconds", **labels) == world.clock.ms / 1000

    run(main)


def test_a_task_that_is_disabled_is_not_run() -> None:
    async def main() -> None:
        world = World()
        collector = world.collector(GcOptions(wal=None, staged=None, detach=None))
        assert list(collector.states) == [Task.MANIFEST, Task.COMPACTED, Task.COMPACTIONS]
        await collector.sweep(Task.WAL)
        with pytest.raises(LatestRecordMissing):
            await collector.sweep(Task.MANIFEST)

    run(main)


def test_passes_follow_their_interval_or_a_trigger() -> None:
    """Each task runs at once; a trigger starts the next pass of the chosen tasks without waiting for the interval."""

    async def main() -> None:
        world = World()
        await world.write(Manifest())
        hourly = TaskOptions(interval_s=3600)
        options = GcOptions(
            manifest=hourly, wal=hourly, compacted=None, compactions=None, detach=None, staged=None,
            delete_grace_period_s=None,
        )  # fmt: skip
        collector = world.collector(options)

        def runs(task: Task) -> float:
            return world.value("gc_runs_total", resource=task, result="ok")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.run)
            await until(lambda: runs(Task.MANIFEST) == runs(Task.WAL) == 1)
            await anyio.wait_all_tasks_blocked()
            assert (runs(Task.MANIFEST), runs(Task.WAL)) == (1, 1)
            collector.trigger([Task.WAL, Task.COMPACTED])
            await until(lambda: runs(Task.WAL) == 2)
            await anyio.wait_all_tasks_blocked()
            assert (runs(Task.MANIFEST), runs(Task.WAL)) == (1, 2)
            collector.trigger()
            await until(lambda: runs(Task.MANIFEST) == 2 and runs(Task.WAL) == 3)
            collector.reconfigure(replace(options, wal=None))
            await anyio.wait_all_tasks_blocked()
            assert world.value("gc_interval_seconds", resource="wal") == 0
            collector.reconfigure(options)
            await until(lambda: runs(Task.WAL) == 4)
            await anyio.wait_all_tasks_blocked()
            assert (runs(Task.MANIFEST), runs(Task.WAL)) == (2, 4)
            tasks.cancel_scope.cancel()

    run(main)


@pytest.mark.parametrize(("takes_s", "begun_s"), [(90, [0, 90, 180]), (60, [0, 60, 120, 180]), (1, [0, 60, 120, 180])])
def test_a_pass_that_takes_longer_than_its_interval_is_followed_by_the_next_at_once(
    takes_s: float, begun_s: list[float]
) -> None:
    class Slow(MemoryStore):
        loop: VirtualLoop
        begun_s: list[float]

        async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
            if prefix == "db/wal/":
                self.begun_s.append(self.loop.time())
                await anyio.sleep(takes_s)
            async for page in super().list_pages(prefix, after=after):
                yield page

    async def scenario(loop: VirtualLoop) -> None:
        env = virtual_env(loop)
        store = Slow(env.clock)
        store.loop, store.begun_s = loop, []
        await ManifestStore(store, "db", env).create_new(Manifest())
        options = GcOptions(
            manifest=None, wal=TaskOptions(interval_s=60), compacted=None, compactions=None, detach=None, staged=None,
            delete_grace_period_s=None,
        )  # fmt: skip
        with anyio.move_on_after(200):
            await Collector(store, "db", env, options).run()
        assert store.begun_s == begun_s

    in_virtual_time(scenario)


def test_the_end_of_a_database_ends_its_collector() -> None:
    async def main() -> None:
        world = World()
        collector = world.collector()
        with anyio.fail_after(60):
            await collector.run()
        assert collector.deleter.state.phase is DeletionPhase.GONE

    run(main)


@pytest.mark.parametrize(("old_lists", "is_over"), [(0, False), (1, False), (3, False), (4, True)])
def test_a_database_is_gone_only_if_several_lists_show_no_manifest(old_lists: int, is_over: bool) -> None:
    """A store whose list was made before the database was created must not end the collector."""

    class OldLists(MemoryStore):
        left = old_lists

        async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
            is_old = prefix == "db/manifest/" and self.left > 0
            self.left -= is_old
            async for page in super().list_pages(prefix, after=after):
                yield [] if is_old else page

    async def scenario(loop: VirtualLoop) -> None:
        env, metrics = virtual_env(loop), Metrics()
        store, whole = OldLists(env.clock), MemoryStore(env.clock)
        whole.objects = store.objects
        await ManifestStore(whole, "db", env).create_new(Manifest())
        options = GcOptions(
            manifest=None, wal=TaskOptions(interval_s=60), compacted=None, compactions=None, detach=None, staged=None,
            delete_grace_period_s=None,
        )  # fmt: skip
        collector = Collector(store, "db", env, options, metrics)
        with anyio.move_on_after(200) as scope:
            await collector.run()
        assert scope.cancelled_caught is not is_over
        assert (collector.deleter.state.phase is DeletionPhase.GONE) is is_over
        assert store.left == 0

    in_virtual_time(scenario)


def test_a_collector_deletes_its_database_once_that_is_due_and_ends() -> None:
    async def main() -> None:
        world = World()
        await world.write(Manifest())
        target = DestroyTarget(store=world.store, root="db", env=world.env, metrics=world.metrics)
        await destroy_later(target)
        world.clock.sleep(2 * DELETE_GRACE_PERIOD_S)
        with anyio.fail_after(60):
            await world.collector().run()
        assert list(world.store.objects) == []

    run(main)


def test_a_pass_that_fails_does_not_end_the_collector() -> None:
    async def main() -> None:
        world = World()
        await with_wal_elsewhere(world)
        collector = world.collector(replace(OPTIONS, wal_fence=None))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.run)
            await until(lambda: all(state.last_success_ms or state.last_error for state in collector.states.values()))
            for count in (1, 2):
                await until(lambda count=count: world.value("gc_runs_total", resource="wal", result="error") == count)
                collector.trigger([Task.WAL])
            tasks.cancel_scope.cancel()
        assert [task for task, state in collector.states.items() if state.last_error] == [Task.WAL]
        assert collector.deleter.state.phase is DeletionPhase.ALIVE

    run(main)


def test_a_panic_ends_the_collector() -> None:
    async def main() -> None:
        world = World()
        await world.write(Manifest(), Manifest(), Manifest())
        world.clock.sleep(AGE_S + 1)
        collector = world.collector(replace(OPTIONS, wal_fence=None, delete_grace_period_s=None))
        await collector.sweep(Task.MANIFEST)
        await world.store.delete(boundary_key("db", "manifest"))
        with pytest.raises(ExceptionGroup) as caught:
            with anyio.fail_after(60):
                await collector.run()
        assert caught.value.subgroup(ProtocolPanic) is not None
        with pytest.raises(ProtocolPanic):
            await collector.run_once()

    run(main)


def test_a_single_run_reports_each_task() -> None:
    async def main() -> None:
        world = World()
        await world.write(Manifest(), Manifest())
        world.clock.sleep(AGE_S + 1)
        done = await world.collector().run_once()
        assert list(done) == list(Task)
        assert {task: progress.deleted for task, progress in done.items() if progress.deleted} == {Task.MANIFEST: 1}

    run(main)


def test_a_wal_store_that_is_missing_is_the_error_of_a_single_run() -> None:
    async def main() -> None:
        world = World()
        manifest = Manifest(wal_object_store_uri="s3://bucket/wal")
        world.manifests = ManifestStore(world.store, "db", world.env, options=ProtocolOptions(manifest_write_version=1))
        await world.write(manifest)
        collector = world.collector()
        with pytest.raises(InvalidRequestError, match="keeps its WAL in s3://bucket/wal"):
            await collector.run_once()
        assert collector.states[Task.MANIFEST].last_success_ms == world.clock.ms

    run(main)


@pytest.mark.parametrize(("broken", "named"), [(("wal", "compacted"), "wal"), (("compacted",), "compacted")])
def test_the_first_error_is_that_of_a_single_run_after_all_tasks(broken: Sequence[str], named: str) -> None:
    class Broken(MemoryStore):
        async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
            if prefix.split("/")[1] in broken:
                raise UnavailableError(f"no answer about {prefix}")
            async for page in super().list_pages(prefix, after=after):
                yield page

    async def main() -> None:
        world = World(Broken(ManualClock()))
        await world.write(Manifest())
        collector = world.collector(replace(OPTIONS, wal_fence=None))
        with pytest.raises(UnavailableError, match=f"no answer about db/{named}/"):
            await collector.run_once()
        done = {task for task, state in collector.states.items() if state.last_success_ms is not None}
        assert {Task.MANIFEST, Task.COMPACTIONS, Task.DETACH} <= done
        assert Task.COMPACTED not in done

    run(main)


def test_a_collector_without_boundary_files_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for enabled, count in ((True, 0), (False, 1)):
        caplog.clear()
        World().collector(replace(OPTIONS, boundary_files_enabled=enabled))
        assert len([record for record in caplog.records if "boundary.disabled" in record.getMessage()]) == count


def test_a_failed_pass_is_measured() -> None:
    class Broken(MemoryStore):
        clock: ManualClock

        async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
            if prefix == "db/wal/":
                self.clock.sleep(3)
                raise UnavailableError("broken")
            async for page in super().list_pages(prefix, after=after):
                yield page

    async def main() -> None:
        world = World(Broken())
        world.store.clock = world.clock  # type: ignore[attr-defined]
        await world.write(Manifest())
        with pytest.raises(UnavailableError, match="broken"):
            await world.collector().sweep(Task.WAL)
        labels = {"resource": "wal"}
        assert world.value("gc_run_duration_seconds_sum", **labels) == 3
        assert world.value("gc_runs_total", result="error", **labels) == 1
        assert world.value("gc_errors_total", error_type="network", **labels) == 1

    run(main)
