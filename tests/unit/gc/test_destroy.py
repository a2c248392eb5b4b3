"""Hard destroys on a store in memory.

Source: docs/reference/protocol.md 8.8, T8.i and T8.j.
"""

from dataclasses import replace
from typing import Any

import anyio
import pytest

from shale.clones.clone import create_clone
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.request import CloneRequest, CloneSource
from shale.errors import (
    FencedError,
    InvalidDbState,
    InvalidDeletion,
    InvalidObjectState,
    InvalidRequestError,
    UnavailableError,
)
from shale.format.names import boundary_key, deleting_key, destroyed_key
from shale.gc.hard_destroy import destroy, plan_destroy
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from shale.types import Manifest
from tests.unit.gc.destroy_harness import Harness
from tests.unit.gc.values import external
from tests.unit.protocol.conftest import run


async def clone_of(harness: Harness, parent: str, path: str) -> None:
    request = CloneRequest(path=path, sources=(CloneSource(path=parent),))
    await create_clone(DatabaseCatalog(harness.store, harness.env, Metrics()), request)


def test_a_database_goes_and_its_siblings_stay() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make("a/db")
        siblings = ["a/db2", "a/db-old", "a/dbx/db"]
        for sibling in siblings:
            await harness.make(sibling)
        before = [key for key in harness.listing() if not key.startswith("a/db/")]
        done = await destroy(harness.target("a/db"))
        assert harness.listing() == before
        assert len(done.objects) > 5
        assert all(each.key.startswith("a/db/") for each in done.objects)
        for sibling in siblings:
            async with harness.open(sibling) as db:
                assert await db.get(b"in the wal") == b"2"

    run(main)


def test_a_plan_writes_nothing_and_names_everything() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        before = harness.listing()
        plan = await plan_destroy(harness.target())
        assert harness.listing() == before == sorted(each.key for each in plan.objects)
        assert plan.obstacles() == ()
        assert {total.namespace for total in plan.totals()} == {"compacted", "wal", "manifest"}

    run(main)


def test_nothing_at_all_is_success_without_work() -> None:
    async def main() -> None:
        harness = Harness()
        assert (await destroy(harness.target())).objects == ()
        assert harness.listing() == []

    run(main)


@pytest.mark.parametrize(
    "key", ["db/readme", "db/manifest/7.manifest", "db/db2/manifest/00000000000000000001.manifest"]
)
def test_a_path_that_is_no_database_is_refused(key: str) -> None:
    """Also with force: nothing proves that any of the objects belong to a database."""

    async def main() -> None:
        harness = Harness()
        await harness.store.put(key, b"x")
        for force in (False, True):
            with pytest.raises(InvalidDbState, match="is no database"):
                await destroy(harness.target(), force=force)
        assert harness.listing() == [key]

    run(main)


def test_a_live_checkpoint_forbids_it_and_an_expired_one_does_not() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        await create_checkpoint(await harness.manifests().load(), harness.env, lifetime_ms=60_000, name="nightly")
        before = harness.listing()
        with pytest.raises(InvalidDeletion, match=r"1 live checkpoints.*nightly"):
            await destroy(harness.target())
        assert harness.listing() == before
        harness.clock.sleep(60)
        await destroy(harness.target())
        assert harness.listing() == []

    run(main)


def test_a_parent_with_a_live_clone_is_refused_and_goes_after_it() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make("parent")
        await clone_of(harness, "parent", "child")
        with pytest.raises(InvalidDeletion):
            await destroy(harness.target("parent"))
        done = await destroy(harness.target("child"))
        assert done.parents == ("parent",)
        harness.clock.sleep(301)  # the short-lived checkpoint that the clone began with
        assert all(each.is_expired(harness.clock.now_ms()) for each in (await harness.latest("parent")).checkpoints)
        await destroy(harness.target("parent"))
        assert harness.listing() == []

    run(main)


def test_a_clone_goes_although_its_parent_is_gone_or_marked() -> None:
    async def main() -> None:
        harness = Harness()
        for parent in ("gone", "marked"):
            await harness.make(parent)
            await clone_of(harness, parent, f"of-{parent}")
        await destroy(harness.target("gone"), force=True)
        await harness.store.put(destroyed_key("marked"), b"{}")
        for parent in ("gone", "marked"):
            await destroy(harness.target(f"of-{parent}"))
        pins = [each for each in (await harness.latest("marked")).checkpoints if not each.expire_s]
        assert pins == []

    run(main)


def test_parents_are_released_although_others_before_them_are_gone_or_were_never_pinned() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make("parent")
        pin = await create_checkpoint(await harness.manifests("parent").load(), harness.env, lifetime_ms=None)
        await harness.make()
        parents = (
            external("never", final=None),
            external("gone", final=1),
            replace(external("parent", final=2), final_checkpoint_id=pin.id),
        )
        await (await harness.manifests().load()).apply(lambda current: replace(current.value, external_dbs=parents))
        done = await destroy(harness.target())
        assert done.parents == ("gone", "parent")
        assert (await harness.latest("parent")).checkpoints == ()

    run(main)


@pytest.mark.parametrize(
    ("parent", "ends"), [("is alive", False), ("is being deleted", True), ("was deleted meanwhile", True)]
)
def test_a_parent_without_its_newest_manifest_stops_a_destroy_only_if_it_is_alive(parent: str, ends: bool) -> None:
    """A parent that is alive keeps the pin until a rerun releases it."""

    class Conflicting(MemoryStore):
        is_refusing = False

        async def put(self, key: str, *args: Any, **options: Any) -> Any:
            if not self.is_refusing or not key.startswith("parent/manifest/"):
                return await super().put(key, *args, **options)
            if parent == "is being deleted":
                await super().put(deleting_key("parent"), b"")
            elif parent == "was deleted meanwhile":
                for each in [each for each in self.objects if each.startswith("parent/")]:
                    del self.objects[each]
            raise InvalidObjectState("gone", path=key)

    async def main() -> None:
        harness = Harness()
        store = Conflicting(harness.clock)
        harness.store = store
        await harness.make("parent")
        await clone_of(harness, "parent", "db")
        store.is_refusing = True
        if not ends:
            kept = harness.contents("db/")
            with pytest.raises(InvalidObjectState):
                await destroy(harness.target())
            assert harness.contents("db/") == kept | {deleting_key("db"): b""}
            store.is_refusing = False
        await destroy(harness.target())
        assert not [key for key in harness.listing() if key.startswith("db/")]

    run(main)


def test_what_else_lies_below_the_root_goes_by_force_only() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make("db")
        await harness.make("db/nested")
        with pytest.raises(InvalidDeletion, match=r"db/nested/"):
            await destroy(harness.target("db"))
        async with harness.open("db"), harness.open("db/nested"):
            pass
        await destroy(harness.target("db"), force=True)
        assert harness.listing() == []

    run(main)


def test_a_nested_database_goes_without_the_outer_one() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make("db")
        before = harness.listing()
        await harness.make("db/nested")
        await destroy(harness.target("db/nested"))
        assert harness.listing() == before

    run(main)


def test_the_wal_in_a_store_of_its_own_goes_as_well() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make("db", wal_store=harness.wal_store)
        await harness.make("db2", wal_store=harness.wal_store)
        await harness.wal_store.put("db/readme", b"not ours")
        done = await destroy(harness.target("db", wal=True))
        assert any(each.in_wal_store for each in done.objects)
        left = harness.listing(harness.wal_store)
        assert [key for key in left if not key.startswith("db2/")] == ["db/readme"]
        async with harness.open("db2", wal_store=harness.wal_store) as db:
            assert await db.get(b"in the wal") == b"2"

    run(main)


@pytest.mark.parametrize("force", [False, True])
def test_a_wal_store_that_is_not_given_stops_it_before_any_change_unless_forced(force: bool) -> None:
    async def main() -> None:
        harness = Harness()
        options = ProtocolOptions(manifest_write_version=1)  # only this version names the store
        manifests = ManifestStore(harness.store, "db", harness.env, options=options)
        await manifests.create_new(Manifest(wal_object_store_uri="memory://wal/"))
        if not force:
            before = dict(harness.store.objects)
            with pytest.raises(InvalidRequestError, match="memory://wal/"):
                await destroy(harness.target())
            assert harness.store.objects == before
        await destroy(harness.target(wal=not force), force=force)
        assert harness.listing() == []

    run(main)


@pytest.mark.fault("F5.11", "F5.20")
@pytest.mark.parametrize("lost", [Fault.BEFORE, Fault.AFTER])
def test_it_completes_after_a_stop_at_any_request(lost: Fault) -> None:
    """A request fails, and so does the command; the next run completes, and parents are released."""

    async def main() -> None:
        for skip in range(200):
            harness = Harness()
            await harness.make("parent")
            await clone_of(harness, "parent", "db")
            harness.clock.sleep(301)
            await harness.store.put(boundary_key("db", "manifest"), b"1")
            outside = harness.contents("parent/")
            faulty = FaultyStore(harness.store, harness.env.rng)
            rule = Rule(fault=lost, skip=skip)
            faulty.add(rule)
            try:
                await destroy(harness.target("db", store=faulty))
            except UnavailableError:
                await destroy(harness.target("db"))
            assert not [key for key in harness.listing() if key.startswith("db/")]
            assert not [each for each in (await harness.latest("parent")).checkpoints if not each.expire_s]
            assert harness.contents("parent/") == outside, "more than the pin has changed in the parent"
            if rule.times:
                assert skip > 20
                return
        pytest.fail("it never ends")

    run(main)


@pytest.mark.fault("F5.20")
def test_between_seal_and_marker_no_process_uses_it() -> None:
    """A writer and a clone are refused; a rerun completes."""

    async def main() -> None:
        harness = Harness()
        await harness.make("db")
        faulty = FaultyStore(harness.store, harness.env.rng)
        faulty.add(Rule(fault=Fault.BEFORE, op="put", key_contains=".deleting"))
        with pytest.raises(UnavailableError):
            await destroy(harness.target("db", store=faulty))
        with pytest.raises(InvalidDbState):
            async with harness.open("db"):
                pass
        with pytest.raises(InvalidDbState):
            await clone_of(harness, "db", "elsewhere")
        with pytest.raises(InvalidDbState):
            await create_checkpoint(await harness.manifests().load(), harness.env, lifetime_ms=None)
        await harness.make("other")
        with pytest.raises(InvalidRequestError):
            await clone_of(harness, "other", "db")
        await destroy(harness.target("db"))
        assert not [key for key in harness.listing() if key.startswith("db/")]

    run(main)


def test_a_checkpoint_that_comes_before_the_seal_is_kept() -> None:
    """T8.i: it is written after the check of the destroy; the seal conflicts, checks again and is refused."""

    async def main() -> None:
        harness = Harness()
        await harness.make("db")
        faulty = FaultyStore(harness.store, harness.env.rng)
        faulty.add(Rule(op="put", delay_before_s=0.01))
        sealing = anyio.Event()
        faulty.observe(lambda request: sealing.set() if request.op == "put" else None)
        outcome: list[InvalidDeletion] = []

        async def destroyer() -> None:
            try:
                await destroy(harness.target("db", store=faulty))
            except InvalidDeletion as error:
                outcome.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(destroyer)
            await sealing.wait()
            kept = await create_checkpoint(await harness.manifests().load(), harness.env, lifetime_ms=None)
        assert len(outcome) == 1
        assert (await harness.latest()).checkpoint(kept.id) is not None

    run(main)


def test_the_seal_fences_a_writer_that_is_still_at_work() -> None:
    async def main() -> None:
        harness = Harness()
        db = await harness.open("db")
        await db.put(b"k", b"v")
        faulty = FaultyStore(harness.store, harness.env.rng)
        faulty.add(Rule(fault=Fault.BEFORE, op="put", key_contains=".deleting"))
        with pytest.raises(UnavailableError):
            await destroy(harness.target("db", store=faulty))
        with pytest.raises(FencedError):
            await db.flush("memtable")
        with pytest.raises(FencedError):
            await db.close()

    run(main)
