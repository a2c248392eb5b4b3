"""A single run completes soft destroys, as the daemon does: docs/reference/protocol.md 8.8."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from shale.admin.context import AdminContext
from shale.admin.gc import GcAdmin
from shale.engine.location import DatabaseStores
from shale.errors import CorruptionError, InvalidDbState, LatestRecordMissing, ShaleError, UnavailableError
from shale.format.names import deleting_key, destroyed_key
from shale.gc.collector import Collector
from shale.gc.hard_destroy import destroy
from shale.gc.options import DELETE_GRACE_PERIOD_S, GcOptions, Task
from shale.gc.soft_destroy import DeletionPhase, destroy_later
from shale.protocol.checkpoints import create_checkpoint, release_checkpoints
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.unit.gc.destroy_harness import Harness
from tests.unit.protocol.conftest import run


def admin(harness: Harness) -> GcAdmin:
    return GcAdmin(AdminContext.of(DatabaseStores(harness.store, None, ()), "db", harness.env, Metrics()))


def counted(metrics: Metrics, task: Task) -> float:
    labels = {"db": "", "resource": task.value}
    return metrics.registry.get_sample_value("slatedb_gc_deleted_objects_total", labels) or 0.0


def test_it_deletes_what_is_due_and_says_so() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await harness.make("db2")
        others = harness.contents("db2/")
        await destroy_later(harness.target())
        done = await admin(harness).run_once()
        assert Task.MANIFEST in done
        assert harness.listing(), "the grace is not over"
        harness.clock.sleep(2 * DELETE_GRACE_PERIOD_S)
        there = [meta for meta in await harness.store.list("db/") if not meta.key.endswith(".destroyed")]
        done = await admin(harness).run_once()
        assert list(done) == ["database"]
        # The seal adds a manifest, and the marker goes as well.
        assert done["database"].deleted == len(there) + 2
        assert done["database"].deleted_bytes > sum(meta.size for meta in there)
        assert not [key for key in harness.listing() if key.startswith("db/")]
        assert harness.contents("db2/") == others

    run(main)


@pytest.mark.parametrize("grace_s", [None, 3 * DELETE_GRACE_PERIOD_S])
def test_the_grace_is_the_one_that_was_given(grace_s: float | None) -> None:
    """``None``: this run deletes no database."""

    async def main() -> None:
        harness = Harness()
        await harness.make()
        await destroy_later(harness.target())
        harness.clock.sleep(2 * DELETE_GRACE_PERIOD_S)
        done = await admin(harness).run_once(GcOptions(delete_grace_period_s=grace_s))
        assert Task.MANIFEST in done
        assert destroyed_key("db") in harness.listing()

    run(main)


def test_one_that_is_blocked_is_collected_as_before() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        stored = await harness.manifests().load()
        pin = await create_checkpoint(stored, harness.env, lifetime_ms=None)
        await destroy_later(harness.target())
        harness.clock.sleep(2 * DELETE_GRACE_PERIOD_S)
        collector = Collector(harness.store, "db", harness.env, GcOptions())
        await collector.run_once()
        assert collector.deleter.state.phase is DeletionPhase.BLOCKED
        assert collector.states[Task.MANIFEST].progress.deleted
        await release_checkpoints(await harness.manifests().load(), [pin.id])
        await collector.run_once()
        assert harness.listing() == []

    run(main)


class Dark(MemoryStore):
    """A store that never responds."""

    def list_pages(self, prefix: str, **_: Any) -> Any:
        raise UnavailableError(f"dark: {prefix}")


def test_a_task_that_fails_keeps_no_other_from_its_pass() -> None:
    """Without the WAL store, the tasks of the main store still run, as in the daemon."""

    async def main() -> None:
        harness = Harness()
        await harness.make()
        collector = Collector(harness.store, "db", harness.env, GcOptions(), wal_store=Dark())
        with pytest.raises(UnavailableError, match="dark"):
            await collector.run_once()
        done = {task for task, state in collector.states.items() if state.last_success_ms is not None}
        assert collector.states.keys() - done == {Task.WAL, Task.STAGED}, "both list the WAL"

    run(main)


def test_the_rest_of_a_destroy_is_finished() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.store.put(deleting_key("db"), b"")
        assert list(await admin(harness).run_once()) == ["database"]
        assert harness.listing() == []

    run(main)


def test_a_marker_that_came_too_late_is_removed() -> None:
    """A process marked the database while another finished deleting it; a manual run removes the marker too."""

    async def main() -> None:
        harness = Harness()
        await harness.make()
        await destroy_later(harness.target())
        mark = harness.store.objects[destroyed_key("db")]
        await destroy(harness.target())
        for remove in (admin(harness).run_once, partial(destroy, harness.target())):
            harness.store.objects[destroyed_key("db")] = mark
            await remove()
            assert harness.listing() == []
        harness.store.objects[destroyed_key("db")] = mark
        await harness.store.put("db/wal/00000000000000000001.sst", b"rows")
        with pytest.raises(LatestRecordMissing):
            await admin(harness).run_once()
        with pytest.raises(InvalidDbState, match="no database"):
            await destroy(harness.target())

    run(main)


def test_a_marker_that_cannot_be_read_is_an_error_and_deletes_nothing() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await harness.store.put(destroyed_key("db"), b"{}")
        harness.clock.sleep(10 * DELETE_GRACE_PERIOD_S)
        before = harness.listing()
        with pytest.raises(CorruptionError, match="destroyed"):
            await admin(harness).run_once()
        assert harness.listing() == before

    run(main)


def test_objects_of_a_database_are_counted_as_what_they_are() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await destroy_later(harness.target())
        harness.clock.sleep(2 * DELETE_GRACE_PERIOD_S)
        metrics = Metrics()
        listed = harness.listing()
        await Collector(harness.store, "db", harness.env, GcOptions(), metrics).run_once()
        gone = {task: counted(metrics, task) for task in Task}
        assert gone[Task.MANIFEST] == len([key for key in listed if "/manifest/" in key]) + 1
        assert gone[Task.COMPACTED] == len([key for key in listed if "/compacted/" in key])
        assert gone[Task.WAL] + gone[Task.WAL_FENCE] == len([key for key in listed if "/wal/" in key])
        assert gone[Task.WAL]
        assert gone[Task.WAL_FENCE]

    run(main)


def test_a_long_deletion_tells_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    class SlowDeleteStore(MemoryStore):
        async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
            harness.clock.sleep(11)
            return await super().delete_many(keys)

    harness = Harness()
    harness.store = SlowDeleteStore(harness.clock)

    async def main() -> None:
        await harness.make()
        await destroy_later(harness.target())
        harness.clock.sleep(2 * DELETE_GRACE_PERIOD_S)
        with caplog.at_level(logging.INFO, "shale"):
            await admin(harness).run_once()

    run(main)
    told = [
        line for record in caplog.records if isinstance(line := record.msg, dict) and line["event"] == "gc.progress"
    ]
    assert len(told) > 2
    assert {line["resource"] for line in told} == {"database"}


def test_a_plan_of_one_that_is_due_tells_and_writes_nothing() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        stored = await harness.manifests().load()
        await create_checkpoint(stored, harness.env, lifetime_ms=60_000)
        await destroy_later(harness.target())
        harness.clock.sleep(2 * DELETE_GRACE_PERIOD_S)
        before = await harness.store.list("")
        assert (await admin(harness).deletion_status()).phase is DeletionPhase.DUE
        assert (await admin(harness).deletion_status(grace_s=9 * DELETE_GRACE_PERIOD_S)).phase is DeletionPhase.WAITING
        assert await harness.store.list("") == before

    run(main)
