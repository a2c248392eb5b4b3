"""The transactional store of a database was lost or is of another time than the files, as after a restore."""

import pytest

from shale import Db
from shale.admin.cas_migration import CasMigration
from shale.env import Env
from shale.errors import AlreadyExists, InvalidObjectState
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.store.port import CREATE
from shale.store.retry import RetryingStore
from shale.store.transactional.memory import MemoryTransactionalStore
from shale.telemetry.metrics import Metrics
from tests.unit.store.two_phase.plain_store import Place

pytestmark = pytest.mark.anyio

NOW = TaskOptions(min_age_s=0.0)
COLLECT_ALL = GcOptions(manifest=NOW, wal=NOW, compacted=NOW, compactions=NOW)


async def test_a_migration_run_again_makes_the_records_that_are_missing() -> None:
    place = Place()
    async with Db.open(store=RetryingStore(place.process(), Env.system()), path="db") as db:
        await db.put(b"a", b"1")
    before = {record.destination for record in await place.records.records("db/")}
    place.records = MemoryTransactionalStore()
    migration = CasMigration(objects=place.objects, records=place.records, root="db", env=Env.system())
    assert (await migration.to_two_phase(dry_run=True)).is_done_already
    assert await place.records.records("db/") == []
    report = await migration.to_two_phase(dry_run=False)
    after = {record.destination for record in await place.records.records("db/")}
    assert report.is_done_already
    assert report.records == len(after)
    assert before - after == {"db/wal/00000000000000000001.sst"}  # at the low-water mark: nothing replays it
    assert after <= before
    with pytest.raises(AlreadyExists):
        await place.process().put(max(after), b"other", mode=CREATE)
    async with Db.open(store=RetryingStore(place.process(), Env.system()), path="db") as db:
        assert await db.get(b"a") == b"1"


async def write(place: Place, key: bytes) -> None:
    async with Db.open(store=RetryingStore(place.process(), Env.system()), path="db") as db:
        await db.put(key, b"1")


@pytest.mark.parametrize("is_collected", [False, True])
async def test_files_of_a_backup_are_not_written_with_records_of_today(is_collected: bool) -> None:
    place = Place()
    await write(place, b"a")
    backup = dict(place.objects.objects)
    await write(place, b"b")
    if is_collected:
        store = RetryingStore(place.process(), Env.system())
        await Collector(store, "db", Env.system(), COLLECT_ALL, Metrics()).run_once()
    place.objects.objects = dict(backup)
    with pytest.raises(InvalidObjectState, match="boundary" if is_collected else "migrate --to two-phase"):
        await write(place, b"c")
    migration = CasMigration(objects=place.objects, records=place.records, root="db", env=Env.system())
    plan = await migration.to_two_phase(dry_run=True)
    assert plan.removed > 0
    assert await migration.to_two_phase(dry_run=False) == plan
    assert (await migration.to_two_phase(dry_run=True)).removed == 0
    await write(place, b"c")
    async with Db.open(store=RetryingStore(place.process(), Env.system()), path="db") as db:
        assert [await db.get(key) for key in (b"a", b"b", b"c")] == [b"1", None, b"1"]
