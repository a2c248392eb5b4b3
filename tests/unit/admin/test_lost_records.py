"""The transactional store of a database was lost, or restored from an old backup."""

import pytest

from shale import Db
from shale.admin.cas_migration import CasMigration
from shale.env import Env
from shale.errors import AlreadyExists
from shale.store.port import CREATE
from shale.store.retry import RetryingStore
from shale.store.transactional.memory import MemoryTransactionalStore
from tests.unit.store.two_phase.plain_store import Place

pytestmark = pytest.mark.anyio


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
