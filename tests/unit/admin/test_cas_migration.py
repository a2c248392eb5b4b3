"""Migrations between conditional writes and two-phase creates, both ways, killed after each request."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import shale
from shale.admin.cas_migration import CasMigration, MigrationReport
from shale.env import Env
from shale.errors import InvalidDbState, LatestRecordMissing
from shale.format.names import wal_key
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.manifest_store import ManifestStore
from shale.store.memory import MemoryStore
from shale.store.retry import RetryingStore
from shale.store.transactional.memory import MemoryTransactionalStore
from shale.store.two_phase.names import parse_staged_key
from shale.store.two_phase.store import TwoPhaseStore
from shale.telemetry.metrics import Metrics
from shale.testing.wal_backends import MemoryWalBackend
from shale.types import CasMode
from tests.unit.store.two_phase.plain_store import OBJECT_CHANGES, RECORD_CHANGES, Killed, Requests

if TYPE_CHECKING:
    from uuid import UUID

    from shale.store.port import ObjectStore

pytestmark = pytest.mark.anyio

MIGRATION_CHANGES = (*RECORD_CHANGES, "import_committed", "remove_all")
NOW = TaskOptions(min_age_s=0.0)
COLLECT_ALL = GcOptions(manifest=NOW, wal=NOW, compacted=NOW, compactions=NOW)
KILLS_MAX = 40
"""More requests than a migration of these databases sends."""


class Stores:
    """A store with conditional writes and a transactional one, and the databases in them."""

    def __init__(self) -> None:
        self.objects = self.wal_objects = MemoryStore()
        self.records = MemoryTransactionalStore()
        self.rows: dict[bytes, bytes] = {}
        self.checkpoint: UUID | None = None
        self.at_checkpoint: dict[bytes, bytes] = {}

    def store(self, mode: CasMode) -> RetryingStore:
        """Return the store of a process with this setting."""
        native: ObjectStore = self.objects
        return RetryingStore(
            TwoPhaseStore(native, self.records, Env.system()) if mode is CasMode.TWO_PHASE else native, Env.system()
        )

    def migration(self, requests: Requests) -> CasMigration:
        """Return a migration whose requests are counted."""
        return CasMigration(
            objects=requests.counted(self.objects, OBJECT_CHANGES),
            records=requests.counted(self.records, MIGRATION_CHANGES),
            root="db",
            env=Env.system(),
        )

    async def write(self, mode: CasMode, *names: bytes) -> None:
        """Write rows; the last one stays in the WAL."""
        async with shale.Db.open("db", store=self.store(mode)) as db:
            for name in names:
                await db.put(name, b"value of " + name)
                self.rows[name] = b"value of " + name
                await db.flush("wal" if name == names[-1] else "memtable")
            await db.close("wal")

    async def fill(self, mode: CasMode) -> None:
        """Make a database with a checkpoint, deleted versions, and rows in the WAL alone."""
        await self.write(mode, b"a", b"b", b"c")
        store = self.store(mode)
        stored = await ManifestStore(store, "db", Env.system(), Metrics()).load()
        self.checkpoint = (await create_checkpoint(stored, Env.system(), lifetime_ms=None)).id
        self.at_checkpoint = dict(self.rows)
        await self.write(mode, b"d", b"e", b"f")
        await Collector(store, "db", Env.system(), COLLECT_ALL, Metrics()).run_once()

    async def leave_a_put_uncommitted(self, directory: str = "db/wal/", *, clock_ahead_ms: int = 0) -> None:
        """Bring the newest file of a directory into the state after the second step of its create."""
        key = max(key for key in self.records.by_destination if key.startswith(directory))
        found = self.records.by_destination[key]
        record = replace(found, is_committed=False, created_at_ms=found.created_at_ms + clock_ahead_ms)
        objects = self.wal_objects if directory == "db/wal/" else self.objects
        await objects.copy(key, record.source)
        await objects.delete(key)
        self.records.by_destination[key] = record

    async def check(self, mode: CasMode) -> None:
        """Check all rows, those of the checkpoint, and that the other mode is refused."""
        async with shale.DbReader.open("db", store=self.store(mode)) as reader:
            assert {row.key: row.value async for row in reader.scan()} == self.rows
        async with shale.DbReader.open("db", store=self.store(mode), checkpoint=self.checkpoint) as reader:
            assert {row.key: row.value async for row in reader.scan()} == self.at_checkpoint
        other = CasMode.NATIVE if mode is CasMode.TWO_PHASE else CasMode.TWO_PHASE
        with pytest.raises((InvalidDbState, LatestRecordMissing)):
            await shale.Db.open("db", store=self.store(other), create_if_missing=False)

    def mode(self) -> CasMode:
        """Return the mode that the newest manifest names."""
        key = max(key for key in self.objects.objects if key.startswith("db/manifest/") and not parse_staged_key(key))
        return CasMode.TWO_PHASE if self.objects.objects[key].data.startswith(b"\xf0\xf2") else CasMode.NATIVE


Prepared = Callable[[Stores], Awaitable[None]]


async def killed_after_each_request(
    prepare: Prepared, migrate: Callable[[CasMigration], Awaitable[MigrationReport]], after: CasMode
) -> list[str]:
    """Kill a migration after each of its requests, use the database, migrate again; return the requests."""
    for step in range(1, KILLS_MAX):
        stores, requests = Stores(), Requests(kill_after=step)
        await prepare(stores)
        try:
            await migrate(stores.migration(requests))
        except Killed:
            # The newest manifest alone decides the mode: the database works in it, and in no other.
            mode = stores.mode()
            await stores.check(mode)
            await stores.write(mode, b"between")
            await migrate(stores.migration(Requests()))
        assert stores.mode() is after
        await stores.check(after)
        await stores.write(after, b"after")
        await Collector(stores.store(after), "db", Env.system(), COLLECT_ALL, Metrics()).run_once()
        await stores.check(after)
        if len(requests.done) < step:
            return requests.done
    pytest.fail("the migration sends more requests than expected")


async def test_a_killed_migration_to_two_phase_is_run_again() -> None:
    async def prepare(stores: Stores) -> None:
        await stores.fill(CasMode.NATIVE)

    requests = await killed_after_each_request(
        prepare, lambda migration: migration.to_two_phase(dry_run=False), CasMode.TWO_PHASE
    )
    assert requests == [
        *("raise_low_water_mark", "raise_low_water_mark", "import_committed"),
        *("import_committed", "put"),
    ]


async def test_a_killed_migration_leaves_one_mode_that_can_read() -> None:
    """A reader changes nothing, so the second one meets what the migration has left."""
    for step in range(1, KILLS_MAX):
        stores, requests = Stores(), Requests(kill_after=step)
        await stores.fill(CasMode.NATIVE)
        with suppress(Killed):
            await stores.migration(requests).to_two_phase(dry_run=False)
        readers = []
        for mode in (CasMode.NATIVE, CasMode.TWO_PHASE):
            with suppress(InvalidDbState):
                async with shale.DbReader.open("db", store=stores.store(mode), follow_latest=True) as reader:
                    assert {row.key: row.value async for row in reader.scan()} == stores.rows
                readers.append(mode)
        assert readers == [stores.mode()], f"killed after {requests.done}"
        if len(requests.done) < step:
            return
    pytest.fail("the migration sends more requests than expected")


async def test_a_killed_migration_to_native_is_run_again() -> None:
    async def prepare(stores: Stores) -> None:
        await stores.fill(CasMode.TWO_PHASE)
        await stores.leave_a_put_uncommitted()

    requests = await killed_after_each_request(
        prepare, lambda migration: migration.to_native(dry_run=False), CasMode.NATIVE
    )
    assert requests == ["copy", "set_committed", "delete", "put", "put", "remove_all"]


async def test_a_database_comes_back_as_it_was() -> None:
    stores = Stores()
    await stores.fill(CasMode.NATIVE)
    before = {key for key in stores.objects.objects if not key.startswith("db/manifest/")}
    for number in range(2):
        await stores.migration(Requests()).to_two_phase(dry_run=False)
        await stores.check(CasMode.TWO_PHASE)
        await stores.migration(Requests()).to_native(dry_run=False)
        await stores.check(CasMode.NATIVE)
        assert not await stores.records.records(""), number
        assert not await stores.records.low_water_marks("")
        assert not [key for key in stores.objects.objects if parse_staged_key(key)]
    after = {key for key in stores.objects.objects if not key.startswith("db/manifest/")}
    assert before <= after


async def test_a_dry_run_changes_nothing() -> None:
    stores = Stores()
    await stores.fill(CasMode.NATIVE)
    before = dict(stores.objects.objects)
    report = await stores.migration(requests := Requests()).to_two_phase(dry_run=True)
    assert requests.done == []
    assert stores.objects.objects == before
    assert report.records > 0
    done = await stores.migration(Requests()).to_two_phase(dry_run=False)
    assert done == report


async def test_a_put_that_cannot_be_finished_stops_the_migration() -> None:
    stores = Stores()
    await stores.fill(CasMode.TWO_PHASE)
    await stores.leave_a_put_uncommitted()
    for key in [key for key in stores.objects.objects if parse_staged_key(key)]:
        await stores.objects.delete(key)
    with pytest.raises(InvalidDbState, match=wal_key("db", 0)[:7]):
        await stores.migration(Requests()).to_native(dry_run=False)
    assert stores.mode() is CasMode.TWO_PHASE


async def test_a_put_by_a_clock_that_is_ahead_is_finished_before_its_record_is_removed() -> None:
    stores = Stores()
    await stores.fill(CasMode.TWO_PHASE)
    await stores.leave_a_put_uncommitted(clock_ahead_ms=60_000)
    await stores.migration(Requests()).to_native(dry_run=False)
    await stores.check(CasMode.NATIVE)


async def test_a_dry_run_finishes_no_put() -> None:
    stores = Stores()
    await stores.fill(CasMode.TWO_PHASE)
    await stores.leave_a_put_uncommitted("db/manifest/")
    await stores.migration(requests := Requests()).to_native(dry_run=True)
    assert requests.done == []


async def test_a_database_that_is_nested_keeps_its_records() -> None:
    stores = Stores()
    await stores.fill(CasMode.TWO_PHASE)
    async with shale.Db.open("db/eu", store=stores.store(CasMode.TWO_PHASE)) as db:
        await db.put(b"a", b"1")
    await stores.records.raise_low_water_mark("db/eu/wal", 1)
    nested = await stores.records.records("db/eu/")
    await stores.migration(Requests()).to_native(dry_run=False)
    assert await stores.records.records("") == nested
    assert await stores.records.low_water_marks("") == {"db/eu/wal": 1}


async def test_the_wal_of_a_migration_may_have_a_store_of_its_own() -> None:
    stores, env = Stores(), Env.system()
    stores.wal_objects = MemoryStore()
    wal = TwoPhaseStore(stores.wal_objects, stores.records, env)
    async with shale.Db.open("db", store=stores.store(CasMode.TWO_PHASE), wal_store=RetryingStore(wal, env)) as db:
        await db.put(b"a", b"1")
        await db.close("wal")
    await stores.leave_a_put_uncommitted()
    migration = replace(stores.migration(Requests()), wal_objects=stores.wal_objects)
    await migration.to_native(dry_run=False)
    native, native_wal = (RetryingStore(each, env) for each in (stores.objects, stores.wal_objects))
    async with shale.Db.open("db", store=native, wal_store=native_wal) as db:
        assert await db.get(b"a") == b"1"
        await db.put(b"b", b"2")
        await db.close("wal")
    with pytest.raises(InvalidDbState, match="wal_store"):
        await stores.migration(Requests()).to_two_phase(dry_run=False)
    assert (await migration.to_two_phase(dry_run=True)).records > 0


async def test_a_database_with_its_wal_in_a_backend_stays_native() -> None:
    stores, backend = Stores(), MemoryWalBackend()
    async with shale.Db.open("db", store=stores.store(CasMode.NATIVE), wal=backend) as db:
        await db.put(b"a", b"v")
    with pytest.raises(InvalidDbState, match="in the backend 'memory'"):
        await stores.migration(Requests()).to_two_phase(dry_run=False)
    async with shale.Db.open("db", store=stores.store(CasMode.NATIVE), wal=backend) as db:
        assert await db.get(b"a") == b"v"
