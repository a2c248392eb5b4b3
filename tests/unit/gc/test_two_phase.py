"""GC and destroy of databases with two-phase creates: kills between the steps of a deletion, pins, and records."""

import random
from typing import Any

import anyio
import pytest

from shale import Db
from shale.clones.clone import create_clone
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.request import CloneRequest, CloneSource
from shale.env import Env, InlineCpu
from shale.errors import UnavailableError
from shale.format.names import deleting_key, manifest_key
from shale.gc.collector import Collector
from shale.gc.hard_destroy import DestroyTarget, destroy
from shale.gc.options import GcOptions, Task, TaskOptions
from shale.gc.soft_destroy import read_deletion_status
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.manifest_store import ManifestStore
from shale.store.port import CREATE, OVERWRITE
from shale.store.retry import RetryingStore
from shale.store.transactional.port import CommitRecord, Slot
from shale.store.two_phase.names import staged_key
from shale.store.two_phase.recovery import TwoPhaseRecovery
from shale.telemetry.metrics import Metrics
from tests.clocks import ManualClock
from tests.unit.store.two_phase.plain_store import Killed, Place, Requests

pytestmark = pytest.mark.anyio

DELETE_STEPS = ["raise_low_water_mark", "set_deleted", "delete_many", "remove_deleted"]


class World:
    """A store without conditional writes, its records, and a clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.place = Place(self.clock)
        self.env = Env(self.clock, random.Random(1), InlineCpu())

    def store(self, requests: Requests | None = None) -> RetryingStore:
        return RetryingStore(self.place.process(requests), self.env)

    def manifests(self) -> ManifestStore:
        return ManifestStore(self.store(), "db", self.env, Metrics())

    def collector(self, requests: Requests | None = None) -> Collector:
        options = GcOptions(manifest=TaskOptions(min_age_s=0))
        return Collector(self.store(requests), "db", self.env, options)

    def target(self, root: str = "db", requests: Requests | None = None) -> DestroyTarget:
        return DestroyTarget(store=self.store(requests), root=root, env=self.env, metrics=Metrics())

    async def make(self, root: str = "db") -> None:
        async with Db.open(root, store=self.store(), env=self.env) as db:
            await db.put(b"k", b"v")

    async def recover(self) -> None:
        result = await TwoPhaseRecovery(self.place.process(), self.env, Metrics()).recover(min_age_ms=-1)
        assert result.errors == {}


async def kill(work: Any) -> bool:
    """Run until the end or until the process is killed; return whether it was."""
    try:
        await work
    except Killed:
        return True
    except BaseExceptionGroup as group:
        if group.subgroup(Killed) is None:
            raise
        return True
    return False


@pytest.mark.fault("F7.10")
@pytest.mark.parametrize("step", range(1, 7))
async def test_a_collector_that_is_killed_between_its_steps_removes_no_pinned_version(step: int) -> None:
    world = World()
    await world.make()
    pinned = await create_checkpoint(await world.manifests().load(), world.env, lifetime_ms=None)
    await world.make()
    await world.make()
    world.clock.sleep(1)
    latest = (await world.manifests().read_latest()).id
    requests = Requests(kill_after=step)
    assert await kill(world.collector(requests).sweep(Task.MANIFEST))
    with anyio.fail_after(60):  # probes and helpers between the kill and the next pass
        for id_ in range(1, latest + 2):
            await world.store().get(manifest_key("db", id_))
        assert (await world.manifests().read_latest()).id == latest
        assert [version.id for version in await world.manifests().list_versions()][-1] == latest
        await world.recover()
    await world.collector().sweep(Task.MANIFEST)
    assert [version.id for version in await world.manifests().list_versions()] == [pinned.manifest_id, latest]
    assert await world.manifests().read(pinned.manifest_id) is not None
    assert await world.place.records.low_water_mark("db/manifest") == latest - 1 > pinned.manifest_id
    assert await world.place.records.unfinished("") == []


async def test_the_steps_of_a_deletion_by_the_collector() -> None:
    world = World()
    await world.make()
    world.clock.sleep(1)
    requests = Requests()
    await world.collector(requests).sweep(Task.MANIFEST)
    assert [name for name in requests.done if name in DELETE_STEPS][-4:] == DELETE_STEPS


async def test_a_destroy_removes_the_records_and_marks_of_the_database_alone() -> None:
    world = World()
    await world.make()
    await world.make("db2")
    with pytest.raises(Killed):  # a staged object, and a record that is not committed
        await world.place.process(Requests(kill_after=2)).put(f"db/wal/{99:020}.sst", b"x", mode=CREATE)
    kept = await world.place.records.records("db2/")
    assert kept
    await destroy(world.target())
    assert not [key for key in world.place.keys if key.startswith("db/")]
    assert await world.place.records.records("db/") == []
    assert await world.place.records.low_water_marks("db/") == {}
    assert await world.place.records.records("db2/") == kept


async def destroyed_after_a_kill(world: World, root: str, step: int) -> bool:
    """Kill a destroy after one of its changes; return whether it had not ended before."""
    return await kill(destroy(world.target(root, Requests(kill_after=step)), force=True))


@pytest.mark.fault("F5.11", "F7.10")
async def test_a_destroy_that_is_killed_after_any_change_completes_when_it_is_called_again() -> None:
    """Also after the mark has passed the newest manifest and before this is gone: then no version is the latest."""
    step, killed = 0, True
    while killed:
        step += 1
        world = World()
        await world.make()
        killed = await destroyed_after_a_kill(world, "db", step)
        assert (await read_deletion_status(world.target())).mark is None
        await destroy(world.target())
        assert world.place.keys == [], f"after change {step}"
        assert await world.place.records.records("") == []
    assert step > 20, "hardly anything was killed"


@pytest.mark.fault("F5.11", "F7.10")
async def test_a_clone_is_destroyed_though_the_destroy_of_its_parent_was_killed() -> None:
    step, killed = 0, True
    while killed:
        step += 1
        world = World()
        await world.make()
        request = CloneRequest(path="clone", sources=(CloneSource(path="db"),))
        await create_clone(DatabaseCatalog(store=world.store(), env=world.env, metrics=Metrics()), request)
        killed = await destroyed_after_a_kill(world, "db", step)
        await destroy(world.target("clone"), force=True)
        assert not [key for key in world.place.keys if key.startswith("clone/")], f"after change {step}"


@pytest.mark.fault("F5.11", "F7.9")
@pytest.mark.parametrize("moment", ["while it is destroyed", "afterwards"])
async def test_the_record_of_a_late_put_without_its_bytes_is_removed_by_a_destroy(moment: str) -> None:
    """A process has died between the first two steps of a create, and its second request arrives last."""
    world = World()
    await world.make()
    if moment == "afterwards":
        await destroy(world.target())
    else:
        await world.store().put(deleting_key("db"), b"", mode=OVERWRITE)
    key = manifest_key("db", 99)
    late = CommitRecord(
        destination=key, source=f"{key}.gone", put_id="late", checksum="", size=1, created_at_ms=world.clock.now_ms()
    )
    assert await world.place.records.insert(late, Slot("db/manifest", 99)) is late
    await destroy(world.target())
    assert world.place.keys == []
    assert await world.place.records.records("") == []
    await world.make()


@pytest.mark.fault("F5.11", "F7.9")
async def test_a_staged_object_that_arrives_after_a_destroy_is_removed_by_the_next_one() -> None:
    world = World()
    await world.make()
    await destroy(world.target())
    await world.place.objects.put(staged_key(manifest_key("db", 9), str(world.env.ids.uuid()), "0" * 64), b"x")
    await destroy(world.target())
    assert world.place.keys == []


async def test_records_that_cannot_be_removed_leave_the_marker_for_a_rerun(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    await world.make()
    records = world.place.records

    async def away(prefix: str) -> None:
        raise UnavailableError(f"away: {prefix}")

    with monkeypatch.context() as patch:
        patch.setattr(records, "remove_all", away)
        with pytest.raises(UnavailableError):
            await destroy(world.target())
    assert world.place.keys == [deleting_key("db")]
    await destroy(world.target())
    assert world.place.keys == []
    assert await records.low_water_marks("db/") == {}
