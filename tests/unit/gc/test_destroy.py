"""Hard destroys on a store in memory: docs/protocol.md 8.8, T8.i, T8.j; F5.11, F5.12, F5.20, F5.21."""

import anyio
import pytest

from shale.clones.clone import create_clone
from shale.clones.neighbours import Neighbours
from shale.clones.request import CloneRequest, CloneSource
from shale.errors import FencedError, InvalidDbState, InvalidDeletion, InvalidRequestError, UnavailableError
from shale.format.names import boundary_key, destroyed_key
from shale.garbage.destroy import destroy, plan_destroy
from shale.protocol.checkpoints import create_checkpoint
from shale.telemetry.metrics import Metrics
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from tests.unit.gc.destroy_house import House
from tests.unit.protocol.conftest import run


async def clone_of(house: House, parent: str, path: str) -> None:
    request = CloneRequest(path=path, sources=(CloneSource(path=parent),))
    await create_clone(Neighbours(house.store, house.env, Metrics()), request)


def test_a_database_goes_and_its_siblings_stay() -> None:
    async def main() -> None:
        house = House()
        await house.make("a/db")
        siblings = ["a/db2", "a/db-old", "a/dbx/db"]
        for sibling in siblings:
            await house.make(sibling)
        before = [key for key in house.listing() if not key.startswith("a/db/")]
        done = await destroy(house.target("a/db"))
        assert house.listing() == before
        assert len(done.objects) > 5
        assert all(each.key.startswith("a/db/") for each in done.objects)
        for sibling in siblings:
            async with house.open(sibling) as db:
                assert await db.get(b"in the wal") == b"2"

    run(main)


def test_a_plan_writes_nothing_and_names_everything() -> None:
    async def main() -> None:
        house = House()
        await house.make()
        before = house.listing()
        plan = await plan_destroy(house.target())
        assert house.listing() == before == sorted(each.key for each in plan.objects)
        assert plan.obstacles() == ()
        assert {total.namespace for total in plan.totals()} == {"compacted", "wal", "manifest"}

    run(main)


def test_nothing_at_all_is_success_without_work() -> None:
    async def main() -> None:
        house = House()
        assert (await destroy(house.target())).objects == ()
        assert house.listing() == []

    run(main)


@pytest.mark.parametrize(
    "key", ["db/readme", "db/manifest/7.manifest", "db/db2/manifest/00000000000000000001.manifest"]
)
def test_a_path_that_is_no_database_is_refused(key: str) -> None:
    """Also by force: nothing proves that any of it was ours."""

    async def main() -> None:
        house = House()
        await house.store.put(key, b"x")
        for force in (False, True):
            with pytest.raises(InvalidDbState, match="is no database"):
                await destroy(house.target(), force=force)
        assert house.listing() == [key]

    run(main)


def test_a_live_checkpoint_forbids_it_and_an_expired_one_does_not() -> None:
    async def main() -> None:
        house = House()
        await house.make()
        await create_checkpoint(await house.manifests().load(), house.env, lifetime_ms=60_000, name="nightly")
        before = house.listing()
        with pytest.raises(InvalidDeletion, match=r"1 live checkpoints.*nightly"):
            await destroy(house.target())
        assert house.listing() == before
        house.clock.sleep(60)
        await destroy(house.target())
        assert house.listing() == []

    run(main)


def test_a_parent_with_a_live_clone_is_refused_and_goes_after_it() -> None:
    async def main() -> None:
        house = House()
        await house.make("parent")
        await clone_of(house, "parent", "child")
        with pytest.raises(InvalidDeletion):
            await destroy(house.target("parent"))
        done = await destroy(house.target("child"))
        assert done.parents == ("parent",)
        house.clock.sleep(301)  # the short-lived checkpoint that the clone began with
        assert all(each.is_expired(house.clock.now_ms()) for each in (await house.latest("parent")).checkpoints)
        await destroy(house.target("parent"))
        assert house.listing() == []

    run(main)


def test_a_clone_goes_although_its_parent_is_gone_or_marked() -> None:
    async def main() -> None:
        house = House()
        for parent in ("gone", "marked"):
            await house.make(parent)
            await clone_of(house, parent, f"of-{parent}")
        await destroy(house.target("gone"), force=True)
        await house.store.put(destroyed_key("marked"), b"{}")
        for parent in ("gone", "marked"):
            await destroy(house.target(f"of-{parent}"))
        pins = [each for each in (await house.latest("marked")).checkpoints if not each.expire_s]
        assert pins == []

    run(main)


def test_what_else_lies_below_the_root_goes_by_force_only() -> None:
    async def main() -> None:
        house = House()
        await house.make("db")
        await house.make("db/nested")
        with pytest.raises(InvalidDeletion, match=r"db/nested/"):
            await destroy(house.target("db"))
        async with house.open("db"), house.open("db/nested"):
            pass
        await destroy(house.target("db"), force=True)
        assert house.listing() == []

    run(main)


def test_a_nested_database_goes_without_the_outer_one() -> None:
    async def main() -> None:
        house = House()
        await house.make("db")
        before = house.listing()
        await house.make("db/nested")
        await destroy(house.target("db/nested"))
        assert house.listing() == before

    run(main)


def test_the_wal_in_a_store_of_its_own_goes_as_well() -> None:
    async def main() -> None:
        house = House()
        await house.make("db", wal_store=house.wal_store)
        await house.make("db2", wal_store=house.wal_store)
        await house.wal_store.put("db/readme", b"not ours")
        done = await destroy(house.target("db", wal=True))
        assert any(each.in_wal_store for each in done.objects)
        left = house.listing(house.wal_store)
        assert [key for key in left if not key.startswith("db2/")] == ["db/readme"]
        async with house.open("db2", wal_store=house.wal_store) as db:
            assert await db.get(b"in the wal") == b"2"

    run(main)


@pytest.mark.parametrize("lost", [Fault.BEFORE, Fault.AFTER])
def test_it_completes_after_a_stop_at_any_request(lost: Fault) -> None:
    """F5.11 and F5.20: a request fails, and so does the command; the next run finishes, and parents are released."""

    async def main() -> None:
        for skip in range(200):
            house = House()
            await house.make("parent")
            await clone_of(house, "parent", "db")
            house.clock.sleep(301)
            await house.store.put(boundary_key("db", "manifest"), b"1")
            outside = house.contents("parent/")
            faulty = FaultyStore(house.store, house.env.rng)
            faulty.add(Rule(fault=lost, skip=skip))
            try:
                await destroy(house.target("db", store=faulty))
            except UnavailableError:
                await destroy(house.target("db"))
            assert not [key for key in house.listing() if key.startswith("db/")]
            assert not [each for each in (await house.latest("parent")).checkpoints if not each.expire_s]
            assert house.contents("parent/") == outside, "more than the pin has changed in the parent"
            if faulty._rules[0].times:
                assert skip > 20
                return
        pytest.fail("it never ends")

    run(main)


def test_between_seal_and_marker_nobody_uses_it() -> None:
    """F5.20: refused to a writer and to a clone; a rerun completes."""

    async def main() -> None:
        house = House()
        await house.make("db")
        faulty = FaultyStore(house.store, house.env.rng)
        faulty.add(Rule(fault=Fault.BEFORE, op="put", key_contains=".deleting"))
        with pytest.raises(UnavailableError):
            await destroy(house.target("db", store=faulty))
        with pytest.raises(InvalidDbState):
            async with house.open("db"):
                pass
        with pytest.raises(InvalidDbState):
            await clone_of(house, "db", "elsewhere")
        with pytest.raises(InvalidDbState):
            await create_checkpoint(await house.manifests().load(), house.env, lifetime_ms=None)
        await house.make("other")
        with pytest.raises(InvalidRequestError):
            await clone_of(house, "other", "db")
        await destroy(house.target("db"))
        assert not [key for key in house.listing() if key.startswith("db/")]

    run(main)


def test_a_checkpoint_that_comes_before_the_seal_is_kept() -> None:
    """T8.i: it is written after the destroy has looked; the seal conflicts, looks again and is refused."""

    async def main() -> None:
        house = House()
        await house.make("db")
        faulty = FaultyStore(house.store, house.env.rng)
        faulty.add(Rule(op="put", delay_before_s=0.01))
        sealing = anyio.Event()
        faulty.observe(lambda request: sealing.set() if request.op == "put" else None)
        outcome: list[InvalidDeletion] = []

        async def destroyer() -> None:
            try:
                await destroy(house.target("db", store=faulty))
            except InvalidDeletion as error:
                outcome.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(destroyer)
            await sealing.wait()
            kept = await create_checkpoint(await house.manifests().load(), house.env, lifetime_ms=None)
        assert len(outcome) == 1
        assert (await house.latest()).checkpoint(kept.id) is not None

    run(main)


def test_the_seal_fences_a_writer_that_is_still_at_work() -> None:
    async def main() -> None:
        house = House()
        db = await house.open("db")
        await db.put(b"k", b"v")
        faulty = FaultyStore(house.store, house.env.rng)
        faulty.add(Rule(fault=Fault.BEFORE, op="put", key_contains=".deleting"))
        with pytest.raises(UnavailableError):
            await destroy(house.target("db", store=faulty))
        with pytest.raises(FencedError):
            await db.flush("memtable")
        with pytest.raises(FencedError):
            await db.close()

    run(main)
