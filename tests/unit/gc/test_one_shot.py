"""A single run finishes what was destroyed softly, as the daemon does: docs/protocol.md 8.8."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from shale.admin.garbage import GarbageAdmin
from shale.admin.place import AdminPlace
from shale.engine.where import Stores
from shale.errors import CorruptionError, InvalidDbState, LatestRecordMissing, ShaleError, UnavailableError
from shale.format.names import deleting_key, destroyed_key
from shale.garbage.collector import Collector
from shale.garbage.destroy import destroy
from shale.garbage.options import DELETE_GRACE_S, GcOptions, Task
from shale.garbage.soft_destroy import Doom, destroy_later
from shale.protocol.checkpoints import create_checkpoint, release_checkpoints
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.unit.gc.destroy_house import House
from tests.unit.protocol.conftest import run


def admin(house: House) -> GarbageAdmin:
    return GarbageAdmin(AdminPlace.of(Stores(house.store, None, ()), "db", house.env, Metrics()))


def counted(metrics: Metrics, task: Task) -> float:
    labels = {"db": "", "resource": task.value}
    return metrics.registry.get_sample_value("slatedb_gc_deleted_objects_total", labels) or 0.0


def test_it_deletes_what_is_due_and_says_so() -> None:
    async def main() -> None:
        house = House()
        await house.make()
        await house.make("db2")
        others = house.contents("db2/")
        await destroy_later(house.target())
        done = await admin(house).run_once()
        assert Task.MANIFEST in done
        assert house.listing(), "the grace is not over"
        house.clock.sleep(2 * DELETE_GRACE_S)
        there = [meta for meta in await house.store.list("db/") if not meta.key.endswith(".destroyed")]
        done = await admin(house).run_once()
        assert list(done) == ["database"]
        # The seal adds a manifest, and the marker goes as well.
        assert done["database"].deleted == len(there) + 2
        assert done["database"].deleted_bytes > sum(meta.size for meta in there)
        assert not [key for key in house.listing() if key.startswith("db/")]
        assert house.contents("db2/") == others

    run(main)


@pytest.mark.parametrize("grace_s", [None, 3 * DELETE_GRACE_S])
def test_the_grace_is_the_one_that_was_given(grace_s: float | None) -> None:
    """``None``: this run deletes no database at all."""

    async def main() -> None:
        house = House()
        await house.make()
        await destroy_later(house.target())
        house.clock.sleep(2 * DELETE_GRACE_S)
        done = await admin(house).run_once(GcOptions(db_delete_grace_s=grace_s))
        assert Task.MANIFEST in done
        assert destroyed_key("db") in house.listing()

    run(main)


def test_one_that_is_blocked_is_collected_as_before() -> None:
    async def main() -> None:
        house = House()
        await house.make()
        stored = await house.manifests().load()
        pin = await create_checkpoint(stored, house.env, lifetime_ms=None)
        await destroy_later(house.target())
        house.clock.sleep(2 * DELETE_GRACE_S)
        collector = Collector(house.store, "db", house.env, GcOptions())
        await collector.run_once()
        assert collector.undertaker.state.doom is Doom.BLOCKED
        assert collector.states[Task.MANIFEST].progress.deleted
        await release_checkpoints(await house.manifests().load(), [pin.id])
        await collector.run_once()
        assert house.listing() == []

    run(main)


class Dark(MemoryStore):
    """A store that answers nothing."""

    def list_pages(self, prefix: str, **_: Any) -> Any:
        raise UnavailableError(f"dark: {prefix}")


def test_a_task_that_fails_keeps_no_other_from_its_pass() -> None:
    """As in the daemon: where a store of WALs is out of reach, SSTs go all the same."""

    async def main() -> None:
        house = House()
        await house.make()
        collector = Collector(house.store, "db", house.env, GcOptions(), wal_store=Dark())
        with pytest.raises(UnavailableError, match="dark"):
            await collector.run_once()
        done = {task for task, state in collector.states.items() if state.last_success_ms is not None}
        assert collector.states.keys() - done == {Task.WAL}

    run(main)


def test_the_rest_of_a_destroy_is_finished() -> None:
    async def main() -> None:
        house = House()
        await house.store.put(deleting_key("db"), b"")
        assert list(await admin(house).run_once()) == ["database"]
        assert house.listing() == []

    run(main)


def test_a_marker_that_came_too_late_is_removed() -> None:
    """Somebody marked the database while another one finished deleting it; by hand it goes as well."""

    async def main() -> None:
        house = House()
        await house.make()
        await destroy_later(house.target())
        mark = house.store._objects[destroyed_key("db")]
        await destroy(house.target())
        for remove in (admin(house).run_once, partial(destroy, house.target())):
            house.store._objects[destroyed_key("db")] = mark
            await remove()
            assert house.listing() == []
        house.store._objects[destroyed_key("db")] = mark
        await house.store.put("db/wal/00000000000000000001.sst", b"rows")
        with pytest.raises(LatestRecordMissing):
            await admin(house).run_once()
        with pytest.raises(InvalidDbState, match="no database"):
            await destroy(house.target())

    run(main)


def test_a_marker_that_cannot_be_read_is_an_error_and_deletes_nothing() -> None:
    async def main() -> None:
        house = House()
        await house.make()
        await house.store.put(destroyed_key("db"), b"{}")
        house.clock.sleep(10 * DELETE_GRACE_S)
        before = house.listing()
        with pytest.raises(CorruptionError, match="destroyed"):
            await admin(house).run_once()
        assert house.listing() == before

    run(main)


def test_objects_of_a_database_are_counted_as_what_they_are() -> None:
    async def main() -> None:
        house = House()
        await house.make()
        await destroy_later(house.target())
        house.clock.sleep(2 * DELETE_GRACE_S)
        metrics = Metrics()
        listed = house.listing()
        await Collector(house.store, "db", house.env, GcOptions(), metrics).run_once()
        gone = {task: counted(metrics, task) for task in Task}
        assert gone[Task.MANIFEST] == len([key for key in listed if "/manifest/" in key]) + 1
        assert gone[Task.COMPACTED] == len([key for key in listed if "/compacted/" in key])
        assert gone[Task.WAL] + gone[Task.WAL_FENCE] == len([key for key in listed if "/wal/" in key])
        assert gone[Task.WAL]
        assert gone[Task.WAL_FENCE]

    run(main)


def test_a_long_deletion_tells_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    class SlowStore(MemoryStore):
        async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
            house.clock.sleep(11)
            return await super().delete_many(keys)

    house = House()
    house.store = SlowStore(house.clock)

    async def main() -> None:
        await house.make()
        await destroy_later(house.target())
        house.clock.sleep(2 * DELETE_GRACE_S)
        with caplog.at_level(logging.INFO, "shale"):
            await admin(house).run_once()

    run(main)
    told = [
        line for record in caplog.records if isinstance(line := record.msg, dict) and line["event"] == "gc.progress"
    ]
    assert len(told) > 2
    assert {line["resource"] for line in told} == {"database"}


def test_a_plan_of_one_that_is_due_tells_and_writes_nothing() -> None:
    async def main() -> None:
        house = House()
        await house.make()
        stored = await house.manifests().load()
        await create_checkpoint(stored, house.env, lifetime_ms=60_000)
        await destroy_later(house.target())
        house.clock.sleep(2 * DELETE_GRACE_S)
        before = await house.store.list("")
        assert (await admin(house).doom()).doom is Doom.DUE
        assert (await admin(house).doom(grace_s=9 * DELETE_GRACE_S)).doom is Doom.WAITING
        assert await house.store.list("") == before

    run(main)
