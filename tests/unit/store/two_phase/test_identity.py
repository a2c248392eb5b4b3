"""The id that keeps the records of one bucket apart from those of another."""

import pytest

from shale import Db, DbReader
from shale.env import Env
from shale.errors import StoreUnsafe
from shale.store.port import CREATE
from shale.store.preflight import check_store
from shale.store.retry import RetryingStore
from shale.store.two_phase.identity import ID_KEY, copy_id, require_same_id, share_id
from shale.store.two_phase.recovery import TwoPhaseRecovery
from shale.store.two_phase.store import TwoPhaseStore
from shale.telemetry.metrics import Metrics
from tests.unit.store.two_phase.plain_store import OBJECT_CHANGES, RECORD_CHANGES, Killed, Place, PlainStore, Requests

pytestmark = pytest.mark.anyio

ENV = Env.system()
KEY = "db/manifest/00000000000000000001.manifest"


def checked(place: Place, objects: PlainStore | None = None) -> TwoPhaseStore:
    """Return the store of a process that checks the id."""
    return TwoPhaseStore(place.objects if objects is None else objects, place.records, ENV, checks_id=True)


async def test_both_have_one_id_and_a_repetition_keeps_it() -> None:
    place = Place()
    await share_id(place.objects, place.records, ENV)
    before = dict(place.objects.objects), dict(place.records.by_destination)
    await share_id(place.objects, place.records, ENV)
    assert (place.objects.objects, place.records.by_destination) == before
    await checked(place).put(KEY, b"1", mode=CREATE)


@pytest.mark.parametrize("kill_after", [1, 2])
async def test_an_interrupted_start_is_repeated(kill_after: int) -> None:
    place, requests = Place(), Requests(kill_after)
    objects = requests.counted(place.objects, OBJECT_CHANGES)
    with pytest.raises(Killed):
        await share_id(objects, requests.counted(place.records, RECORD_CHANGES), ENV)
    await share_id(place.objects, place.records, ENV)
    await require_same_id(place.objects, place.records)


async def test_another_bucket_with_the_same_records_is_refused() -> None:
    place, other = Place(), PlainStore()
    await share_id(place.objects, place.records, ENV)
    async with Db.open("db", store=RetryingStore(checked(place), ENV)) as db:
        await db.put(b"k", b"v")
    before = dict(place.records.by_destination), dict(place.records.marks)
    with pytest.raises(StoreUnsafe, match="another store"):
        await share_id(other, place.records, ENV)
    store = RetryingStore(checked(place, other), ENV)
    for path in ("db", "new"):
        with pytest.raises(StoreUnsafe, match="another store"):
            await Db.open(path, store=store)
        with pytest.raises(StoreUnsafe):
            await DbReader.open(path, store=store)
    with pytest.raises(StoreUnsafe):
        await store.put(KEY, b"1", mode=CREATE)
    with pytest.raises(StoreUnsafe):
        await store.delete(KEY)
    with pytest.raises(StoreUnsafe):
        await store.delete_many([KEY])
    with pytest.raises(StoreUnsafe):
        await store.get(KEY)
    with pytest.raises(StoreUnsafe):
        await store.put("db/gc/manifest.boundary", b"1", mode=CREATE)
    with pytest.raises(StoreUnsafe):
        await TwoPhaseRecovery(checked(place, other), ENV, Metrics()).recover()
    assert (place.records.by_destination, place.records.marks) == before
    assert not other.objects


async def test_a_bucket_that_had_an_id_of_its_own_is_refused_too() -> None:
    one, two = Place(), Place()
    for place in (one, two):
        await share_id(place.objects, place.records, ENV)
    with pytest.raises(StoreUnsafe, match="another store"):
        await share_id(one.objects, two.records, ENV)


async def test_records_that_were_lost_are_told_until_they_are_set_up_again() -> None:
    place = Place()
    await share_id(place.objects, place.records, ENV)
    await place.records.remove_all("")
    with pytest.raises(StoreUnsafe, match="shale cas init"):
        await checked(place).put(KEY, b"1", mode=CREATE)
    await share_id(place.objects, place.records, ENV)
    await checked(place).put(KEY, b"1", mode=CREATE)


async def test_the_store_of_a_wal_gets_the_id_of_its_database() -> None:
    place, wal = Place(), PlainStore()
    await copy_id(place.objects, wal)
    assert not wal.objects
    await share_id(place.objects, place.records, ENV)
    await copy_id(place.objects, wal)
    assert wal.objects[ID_KEY].data == place.objects.objects[ID_KEY].data
    await require_same_id(wal, place.records)


async def test_the_check_of_stores_names_it() -> None:
    place = Place()
    await share_id(place.objects, place.records, ENV)
    for store, is_ok in ((checked(place), True), (checked(place, PlainStore()), False)):
        results = await check_store(RetryingStore(store, ENV), ENV, full=False)
        found = next(each for each in results if each.name == "records")
        assert found.ok is is_ok, found.seen
    assert "another store" in found.seen


async def test_the_id_is_read_once() -> None:
    place = Place()
    await share_id(place.objects, place.records, ENV)
    store = checked(place)
    await store.put(KEY, b"1", mode=CREATE)
    await place.objects.delete(ID_KEY)
    await store.list("db/manifest/")
    await store.delete(KEY)


async def test_without_an_id_nothing_is_checked() -> None:
    await checked(Place()).put(KEY, b"1", mode=CREATE)


async def test_errors_name_the_commands_that_help() -> None:
    place = Place()
    await share_id(place.objects, place.records, ENV)
    with pytest.raises(StoreUnsafe, match="shale cas init' with --wal-store"):
        await require_same_id(PlainStore(), place.records)
    with pytest.raises(StoreUnsafe, match="shale cas migrate --to two-phase"):
        await require_same_id(place.objects, Place().records)
