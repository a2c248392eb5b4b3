"""Creates, reads, listings and deletions of the two-phase mode, and their interruption after each request."""

import anyio
import pytest

from shale.env import Env
from shale.errors import AlreadyExists, InvalidObjectState, InvalidRequestError, Precondition, UnavailableError
from shale.store.port import CREATE, NOT_MODIFIED, PUT_ID, GetResult, Update
from shale.store.preflight import check_store
from shale.store.transactional.memory import MemoryTransactionalStore
from shale.store.transactional.port import CommitRecord, Slot
from shale.store.two_phase.recovery import TwoPhaseRecovery
from shale.store.two_phase.store import TwoPhaseStore
from shale.telemetry.metrics import Metrics
from shale.types import AckAfter
from tests.unit.store.two_phase.plain_store import Killed, Place, Requests

pytestmark = pytest.mark.anyio

MANIFEST = "db/manifest/00000000000000000007.manifest"
CREATE_STEPS = ["put", "insert", "copy", "set_committed", "delete"]
DELETE_STEPS = ["raise_low_water_mark", "set_deleted", "delete_many", "delete", "remove_deleted"]


async def read(store: TwoPhaseStore, key: str) -> bytes | None:
    found = await store.get(key)
    return None if found is None else bytes(found.data)


async def recover(place: Place) -> None:
    result = await TwoPhaseRecovery(place.process(), Env.system(), Metrics()).recover(min_age_ms=-1)
    assert result.errors == {}
    assert await place.records.unfinished("") == []


async def test_a_create_takes_five_requests() -> None:
    place, requests = Place(), Requests()
    await place.process(requests).put(MANIFEST, b"one", mode=CREATE)
    assert requests.done == CREATE_STEPS
    assert place.keys == [MANIFEST]
    (record,) = await place.records.records("")
    assert (record.is_committed, record.size) == (True, 3)


async def test_a_second_create_conflicts_and_leaves_nothing() -> None:
    place = Place()
    await place.process().put(MANIFEST, b"one", mode=CREATE)
    with pytest.raises(AlreadyExists):
        await place.process().put(MANIFEST, b"two", mode=CREATE)
    assert place.keys == [MANIFEST]
    assert await read(place.process(), MANIFEST) == b"one"


async def test_one_of_many_creates_wins() -> None:
    place = Place()
    won: list[bytes] = []

    async def create(data: bytes) -> None:
        try:
            await place.process().put(MANIFEST, data, mode=CREATE)
        except AlreadyExists:
            return
        won.append(data)

    async with anyio.create_task_group() as tasks:
        for number in range(16):
            tasks.start_soon(create, b"%d" % number)
    (winner,) = won
    assert await read(place.process(), MANIFEST) == winner
    assert place.keys == [MANIFEST]


@pytest.mark.fault("F7.1")
@pytest.mark.parametrize("step", range(1, 6))
async def test_a_create_that_was_killed_is_finished_or_never_was(step: int) -> None:
    place = Place()
    with pytest.raises(Killed):
        await place.process(Requests(kill_after=step)).put(MANIFEST, b"one", mode=CREATE)
    is_committed = step >= 2
    # A probe, a listing and another create all agree on the commit point.
    assert await read(place.process(), MANIFEST) == (b"one" if is_committed else None)
    if is_committed:
        with pytest.raises(AlreadyExists):
            await place.process().put(MANIFEST, b"two", mode=CREATE)
    listed = [meta.key for meta in await place.process().list("db/manifest/")]
    assert listed == ([MANIFEST] if is_committed else [])
    await recover(place)
    assert [key for key in place.keys if key == MANIFEST] == listed


@pytest.mark.fault("F7.1")
@pytest.mark.parametrize("step", range(2, 6))
async def test_recovery_alone_finishes_a_killed_create(step: int) -> None:
    place = Place()
    with pytest.raises(Killed):
        await place.process(Requests(kill_after=step)).put(MANIFEST, b"one", mode=CREATE)
    await recover(place)
    (record,) = await place.records.records("")
    assert record.is_committed
    assert bytes(place.objects.objects[MANIFEST].data) == b"one"
    # Only a process that died before it deleted its own staged object leaves one, to the sweep.
    assert len(place.keys) == (2 if step == 4 else 1)


@pytest.mark.fault("F7.2")
@pytest.mark.parametrize("step", range(1, 5))
async def test_a_repeated_put_recognises_itself(step: int) -> None:
    place = Place()
    stamp = {PUT_ID: "01ARZ3NDEKTSV4RRFFQ69G5FAV"}
    with pytest.raises(Killed):
        await place.process(Requests(kill_after=step)).put(MANIFEST, b"one", mode=CREATE, attributes=stamp)
    await place.process().put(MANIFEST, b"one", mode=CREATE, attributes=stamp)
    assert place.keys == [MANIFEST]
    meta = await place.process().head(MANIFEST)
    assert meta is not None
    assert meta.attributes == stamp


@pytest.mark.fault("F7.4")
async def test_a_stale_create_after_a_deletion_is_refused() -> None:
    place = Place()
    await place.process().put(MANIFEST, b"one", mode=CREATE)
    await place.process().delete(MANIFEST)
    assert place.keys == []
    assert await place.records.records("") == []
    with pytest.raises(AlreadyExists, match="low-water mark"):
        await place.process().put(MANIFEST, b"two", mode=CREATE)
    assert place.keys == []


@pytest.mark.fault("F7.10")
@pytest.mark.parametrize("step", range(1, 6))
async def test_a_deletion_that_was_killed_is_repeated(step: int) -> None:
    place = Place()
    with pytest.raises(Killed):
        await place.process(Requests(kill_after=4)).put(MANIFEST, b"one", mode=CREATE)  # leaves a staged object
    requests = Requests(kill_after=step)
    with pytest.raises(Killed):
        await place.process(requests).delete(MANIFEST)
    assert requests.done == DELETE_STEPS[:step]
    if step >= 3:  # no help brings the object back
        assert await read(place.process(), MANIFEST) is None
    await recover(place)
    assert (MANIFEST in place.keys) == (step == 1)
    await place.process().delete(MANIFEST)
    assert place.keys == []
    assert await place.records.records("") == []


async def test_many_deletions_mark_once_and_list_once() -> None:
    place = Place()
    keys = [f"db/wal/{id_:020}.sst" for id_ in range(1, 6)]
    for key in keys:
        await place.process().put(key, b"rows", mode=CREATE)
    requests = Requests()
    sst = "db/compacted/01ARZ3NDEKTSV4RRFFQ69G5FAV.sst"
    await place.process().put(sst, b"sst")
    assert await place.process(requests).delete_many([*keys[:3], sst]) == {}
    assert requests.done.count("raise_low_water_mark") == 1
    assert place.keys == keys[3:]
    assert await place.records.low_water_mark("db/wal") == 3


async def test_staged_objects_are_hidden_in_directories_of_numbered_files_only() -> None:
    place = Place()
    with pytest.raises(Killed):
        await place.process(Requests(kill_after=1)).put(MANIFEST, b"one", mode=CREATE)
    assert await place.process().list("db/manifest/") == []
    (seen,) = await place.process().list("db/")  # who destroys the database deletes it
    assert seen.key.startswith(MANIFEST)


async def test_a_lost_staged_object_is_an_error_unless_the_owner_has_the_bytes() -> None:
    place = Place()
    with pytest.raises(Killed):
        await place.process(Requests(kill_after=2)).put(MANIFEST, b"one", mode=CREATE, attributes={PUT_ID: "0" * 26})
    for key in place.keys:
        del place.objects.objects[key]
    with pytest.raises(InvalidObjectState, match="the staged object is gone"):
        await place.process().get(MANIFEST)
    result = await TwoPhaseRecovery(place.process(), Env.system(), Metrics()).recover(min_age_ms=-1)
    assert list(result.errors) == [MANIFEST]
    await place.process().put(MANIFEST, b"one", mode=CREATE, attributes={PUT_ID: "0" * 26})
    assert await read(place.process(), MANIFEST) == b"one"


@pytest.mark.fault("F7.3")
@pytest.mark.parametrize("step", range(1, 5))
async def test_a_helper_may_finish_between_any_two_steps_of_the_owner(step: int) -> None:
    place = Place()

    class Helped(Requests):
        async def call(self, name, send):  # type: ignore[no-untyped-def]
            result = await super().call(name, send)
            if len(self.done) == step:
                await read(place.process(), MANIFEST)
            return result

    await place.process(Helped()).put(MANIFEST, b"one", mode=CREATE)
    assert place.keys == [MANIFEST]
    assert await place.records.unfinished("") == []


@pytest.mark.fault("F7.5")
async def test_a_late_copy_after_a_deletion_is_below_the_mark() -> None:
    place = Place()
    with pytest.raises(Killed):
        await place.process(Requests(kill_after=2)).put(MANIFEST, b"one", mode=CREATE)
    (record,) = await place.records.records("")
    stalled = place.process()
    await place.process().get(MANIFEST)
    await place.process().delete(MANIFEST)
    assert await stalled.commits.help(record)  # its staged object is gone, and so is its record
    assert place.keys == []
    await place.objects.put(MANIFEST, b"one")  # a copy that the store had accepted before
    boundary = await read(place.process(), "db/gc/manifest.boundary")
    assert boundary == b"7"
    await place.process().delete(MANIFEST)
    assert place.keys == ["db/gc/manifest.boundary"] or place.keys == []


async def test_boundary_files_are_marks() -> None:
    place = Place()
    key = "db/gc/manifest.boundary"
    store = place.process()
    assert await store.get(key) is None
    first = await store.put(key, b"5", mode=CREATE)
    assert first is not None
    with pytest.raises(AlreadyExists):
        await store.put(key, b"6", mode=CREATE)
    second = await store.put(key, b"9", mode=Update(first))
    assert second is not None
    with pytest.raises(Precondition):
        await store.put(key, b"10", mode=Update(first))
    assert await store.get_if_changed(key, second) is NOT_MODIFIED
    changed = await store.get_if_changed(key, first)
    assert isinstance(changed, GetResult)
    assert bytes(changed.data) == b"9"
    assert bytes(place.objects.objects[key].data) == b"9"
    del place.objects.objects[key]
    assert await read(store, key) == b"9"


async def test_the_preflight_demands_tables() -> None:
    class WithoutTables(MemoryTransactionalStore):
        async def schema_version(self) -> int | None:
            return None

    store = TwoPhaseStore(Place().objects, WithoutTables(), Env.system())
    results = await check_store(store, Env.system(), full=False, needs_update=False)
    assert [(each.name, each.seen) for each in results if each.ok is False] == [
        ("records", "no tables: run 'shale cas init'")
    ]


async def test_the_preflight_ends_at_tables_that_cannot_be_used() -> None:
    class OfAnotherRelease(MemoryTransactionalStore):
        async def schema_version(self) -> int | None:
            return 2

        async def insert(self, record: CommitRecord, slot: Slot | None) -> CommitRecord | None:
            raise InvalidRequestError("version 2")

    store = TwoPhaseStore(Place().objects, OfAnotherRelease(), Env.system())
    results = await check_store(store, Env.system(), full=True, needs_update=False)
    assert [(each.name, each.seen) for each in results] == [("records", "tables of version 2")]


async def test_the_preflight_accepts_a_plain_store_with_records() -> None:
    place = Place()
    results = await check_store(place.process(), Env.system(), full=True, needs_update=False)
    assert [result for result in results if result.required and result.ok is False] == []
    assert place.keys == []
    assert await place.records.records("") == []


async def test_an_acknowledgement_after_the_record_comes_before_the_copy() -> None:
    place, requests = Place(), Requests()
    copied = anyio.Event()

    class Slow(Requests):
        async def call(self, name, send):  # type: ignore[no-untyped-def]
            if name == "copy":
                await copied.wait()
            return await requests.call(name, send)

    store = place.process(Slow(), ack_after=AckAfter.RECORD)
    await store.put(MANIFEST, b"one", mode=CREATE)
    assert requests.done == CREATE_STEPS[:2]
    assert await read(place.process(), MANIFEST) == b"one"  # a reader that comes first makes the copy
    copied.set()
    await store.aclose()
    assert requests.done == ["put", "insert", "set_committed", "delete"]  # its own copy found nothing to copy
    assert place.keys == [MANIFEST]
    assert await place.records.unfinished("") == []


async def test_a_copy_that_fails_in_the_background_is_left_to_recovery() -> None:
    place = Place()

    class Broken(Requests):
        async def call(self, name, send):  # type: ignore[no-untyped-def]
            if name == "copy":
                raise UnavailableError("the store is away")
            return await super().call(name, send)

    store = place.process(Broken(), ack_after=AckAfter.RECORD)
    for number in range(40):  # more than may wait at the same time
        await store.put(f"db/wal/{number + 1:020}.sst", b"one", mode=CREATE)
    await store.aclose()
    assert len(await place.records.unfinished("")) == 40
    await recover(place)
    assert len(place.keys) == 40


async def test_recovery_tells_whether_the_transactional_store_answers() -> None:
    place, metrics = Place(), Metrics()

    class Away(MemoryTransactionalStore):
        async def unfinished(self, prefix: str) -> list[CommitRecord]:
            raise UnavailableError("no route")

    up = metrics.gauge("slatedb_transactional_store_up")
    await TwoPhaseRecovery(place.process(), Env.system(), metrics).recover()
    assert up.value == 1
    away = TwoPhaseStore(place.objects, Away(), Env.system())
    with pytest.raises(UnavailableError):
        await TwoPhaseRecovery(away, Env.system(), metrics).recover()
    assert up.value == 0


async def test_keys_of_another_store_are_not_recovered() -> None:
    place = Place()
    wal, manifest = "db/wal/00000000000000000001.sst", "db/manifest/00000000000000000001.manifest"
    for key in (wal, manifest):
        with pytest.raises(Killed):
            await place.process(Requests(kill_after=2)).put(key, b"one", mode=CREATE)
    recovery = TwoPhaseRecovery(place.process(), Env.system(), Metrics(), "db/", excluded="db/wal/")
    result = await recovery.recover(min_age_ms=None)
    assert (result.recovered, result.errors) == ((manifest,), {})
    assert [record.destination for record in await place.records.unfinished("")] == [wal]


async def test_a_failure_after_the_copy_does_not_change_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    place, key = Place(), "db/wal/00000000000000000001.sst"

    async def away(record: object) -> None:
        raise UnavailableError("no route")

    store = place.process()
    monkeypatch.setattr(place.records, "set_committed", away)
    await store.put(key, b"one", mode=CREATE)
    assert len(place.records.uncommitted) == 1
    monkeypatch.undo()
    await TwoPhaseRecovery(store, Env.system(), Metrics()).recover(min_age_ms=None)
    assert place.keys == [key]
