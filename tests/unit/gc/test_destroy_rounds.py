"""Hard destroys while requests of dead processes arrive, and beside another destroy of the same database."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from shale.errors import (
    InvalidDbState,
    InvalidDeletion,
    InvalidObjectState,
    ShaleError,
    UnavailableError,
)
from shale.format.names import deleting_key, wal_key
from shale.gc.hard_destroy import destroy, plan_destroy
from shale.gc.soft_destroy import DeletionPhase, read_deletion_status
from shale.protocol.checkpoints import create_checkpoint
from shale.store.memory import MemoryStore
from shale.store.port import LIST_PAGE
from shale.types import Manifest
from tests.unit.gc.destroy_harness import Harness
from tests.unit.protocol.conftest import run

if TYPE_CHECKING:
    from shale.gc.destroy_plan import ObjectToDelete


class Late(MemoryStore):
    """Requests of dead processes arrive and create an object after each of the first rounds of deletions."""

    arrives = 0

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        failed = await super().delete_many(keys)
        if self.arrives and any("/.destroyed" in key or key.startswith("db/wal/") for key in keys):
            self.arrives -= 1
            await self.put(wal_key("db", 100 + self.arrives), b"late")
        return failed


@pytest.mark.parametrize(("arrives", "ends"), [(2, True), (3, False)])
def test_objects_that_arrive_late_are_deleted_in_a_few_rounds(arrives: int, ends: bool) -> None:
    async def main() -> None:
        harness = Harness()
        harness.store = Late(harness.clock)
        await harness.make()
        harness.store.arrives = arrives
        told: list[ObjectToDelete] = []
        if ends:
            done = await destroy(harness.target(), on_deleted=told.append)
            assert list(done.objects) == told
            assert [each.key for each in told if "/wal/" in each.key][-2:] == [
                wal_key("db", 100 + number) for number in (1, 0)
            ]
            assert harness.listing() == []
        else:
            with pytest.raises(InvalidDbState, match="objects keep appearing below db in memory:///"):
                await destroy(harness.target())
            assert deleting_key("db") in harness.listing(), "the next call goes on"

    run(main)


def test_objects_go_in_bounded_requests_stage_by_stage() -> None:
    class Batches(MemoryStore):
        def __init__(self, clock: object) -> None:
            super().__init__(clock)  # type: ignore[arg-type]
            self.batches: list[list[str]] = []

        async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
            self.batches.append(list(keys))
            await anyio.lowlevel.checkpoint()
            return await super().delete_many(keys)

    async def main() -> None:
        harness = Harness()
        store = Batches(harness.clock)
        harness.store = store
        await harness.make()
        for number in range(2 * LIST_PAGE + 1):
            await store.put(f"db/compacted/x{number:05}", b"x")
        done = await destroy(harness.target())
        stages = [each.stage for each in done.objects]
        assert stages == sorted(stages)
        sizes = [len(batch) for batch in store.batches if "db/compacted/" in batch[0]]
        assert max(sizes) == LIST_PAGE
        assert len(sizes) == 3
        assert all(len({key.split("/")[1] for key in batch}) == 1 for batch in store.batches)

    run(main)


def test_eight_requests_to_delete_are_under_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shale.gc.hard_destroy.LIST_PAGE", 2)

    class Counted(MemoryStore):
        active = 0
        peak = 0

        async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
            self.active += 1
            self.peak = max(self.peak, self.active)
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            self.active -= 1
            return await super().delete_many(keys)

    async def main() -> None:
        harness = Harness()
        store = Counted(harness.clock)
        harness.store = store
        await harness.manifests().create_new(Manifest())
        for number in range(100):  # in four rounds of one request each, eight workers would not do
            await store.put(f"db/compacted/x{number:05}", b"x")
        await destroy(harness.target())
        assert store.peak == 8
        assert harness.listing() == []

    run(main)


def test_an_object_that_cannot_be_deleted_stops_before_the_next_stage() -> None:
    class Stubborn(MemoryStore):
        is_stubborn = True

        async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
            kept = [key for key in keys if self.is_stubborn and "/compacted/b" in key]
            await super().delete_many([key for key in keys if key not in kept])
            return dict.fromkeys(kept, UnavailableError("stubborn"))

    async def main() -> None:
        harness = Harness()
        store = Stubborn(harness.clock)
        harness.store = store
        await harness.make()
        for name in ("a", "b", "c"):
            await store.put(f"db/compacted/{name}", b"x")
        told: list[str] = []
        with pytest.raises(UnavailableError, match="stubborn"):
            await destroy(harness.target(), on_deleted=lambda each: told.append(each.key))
        assert "db/compacted/b" not in told
        assert {"db/compacted/a", "db/compacted/c"} <= set(told)
        assert any("/wal/" in key for key in harness.listing())
        store.is_stubborn = False
        await destroy(harness.target())
        assert harness.listing() == []

    run(main)


@pytest.mark.parametrize(("times", "ends"), [(2, True), (3, False)])
def test_a_destroy_by_two_processes_is_tried_three_times(times: int, ends: bool) -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        left = times

        class Conflicting(MemoryStore):
            async def put(self, key: str, *args: object, **options: object) -> object:  # type: ignore[override]
                nonlocal left
                if "/manifest/" in key and left:
                    left -= 1
                    raise InvalidObjectState("gone", path=key)
                return await super().put(key, *args, **options)  # type: ignore[arg-type]

        store = Conflicting(harness.clock)
        store.objects = harness.store.objects
        if ends:
            await destroy(harness.target(store=store))
            assert harness.listing() == []
        else:
            with pytest.raises(InvalidObjectState):
                await destroy(harness.target(store=store))
        assert left == 0

    run(main)


def test_a_plan_of_a_destroy_that_was_begun_asks_for_no_checkpoint() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await create_checkpoint(await harness.manifests().load(), harness.env, lifetime_ms=None)
        plan = await plan_destroy(harness.target())
        assert (plan.is_begun, len(plan.checkpoints)) == (False, 1)
        assert plan.manifest_id == (await harness.manifests().read_latest()).id
        await harness.store.put(deleting_key("db"), b"")
        begun = await plan_destroy(harness.target())
        assert (begun.is_begun, begun.checkpoints) == (True, ())

    run(main)


@pytest.mark.parametrize(
    ("key", "is_other"),
    [("db/.destroyed", False), ("db/.shale-preflight/x", False), ("db/wal/00000000000000000001.sst", True)],
)
def test_scratch_objects_alone_are_no_database(key: str, is_other: bool) -> None:
    async def main() -> None:
        harness = Harness()
        await harness.store.put(key, b"x")
        if is_other:
            with pytest.raises(InvalidDbState, match="db in memory:/// is no database: there are 1 objects"):
                await plan_destroy(harness.target())
        else:
            assert [each.key for each in (await plan_destroy(harness.target())).objects] == [key]
            await destroy(harness.target())
            assert harness.listing() == []

    run(main)


@pytest.mark.parametrize("force", [False, True])
def test_foreign_objects_are_found_before_anything_is_changed(force: bool) -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await harness.store.put("db/notes.txt", b"x")
        before = dict(harness.store.objects)
        if force:
            await destroy(harness.target(), force=True)
            assert harness.listing() == []
        else:
            with pytest.raises(InvalidDeletion, match=r"db/notes\.txt"):
                await destroy(harness.target())
            assert harness.store.objects == before

    run(main)


@pytest.mark.parametrize("force", [False, True])
def test_foreign_objects_that_arrive_during_a_destroy_are_kept_without_force(force: bool) -> None:
    class Arriving(MemoryStore):
        is_late = False

        async def put(self, key: str, *args: Any, **options: Any) -> Any:
            written = await super().put(key, *args, **options)
            if self.is_late and key == deleting_key("db"):
                await super().put("db/notes.txt", b"x")
            return written

    async def main() -> None:
        harness = Harness()
        store = Arriving(harness.clock)
        harness.store = store
        await harness.make()
        store.is_late = True
        if force:
            await destroy(harness.target(), force=True)
            assert harness.listing() == []
        else:
            with pytest.raises(InvalidDeletion, match=r"db/notes\.txt"):
                await destroy(harness.target())
            assert "db/notes.txt" in harness.listing()

    run(main)


def test_a_request_that_fails_as_a_whole_stops_a_destroy() -> None:
    class Away(MemoryStore):
        is_away = True

        async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
            if self.is_away:
                raise UnavailableError("away")
            return await super().delete_many(keys)

    async def main() -> None:
        harness = Harness()
        store = Away(harness.clock)
        harness.store = store
        await harness.make()
        with pytest.raises(UnavailableError, match="away"):
            await destroy(harness.target())
        assert deleting_key("db") in harness.listing()
        store.is_away = False
        await destroy(harness.target())
        assert harness.listing() == []

    run(main)


def test_a_newest_manifest_behind_the_boundary_does_not_hide_a_database_that_is_being_deleted() -> None:
    """With two-phase creates, the deletion of the newest manifest raises the boundary first."""

    async def main() -> None:
        harness = Harness()
        await harness.make()
        await harness.store.put(deleting_key("db"), b"")
        latest = await harness.manifests().read_latest()
        await harness.manifests().advance_boundary(latest.id)
        assert (await read_deletion_status(harness.target())).phase is DeletionPhase.ALIVE
        await destroy(harness.target())
        assert harness.listing() == []

    run(main)
