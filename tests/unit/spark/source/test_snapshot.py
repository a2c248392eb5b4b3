"""The state that a read sees, the checkpoint that pins it, and the error if it is lost."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import anyio
import pytest

from shale.engine.location import DatabaseStores
from shale.engine.read.pins import Pin
from shale.errors import (
    CheckpointMissing,
    CorruptionError,
    InvalidDbState,
    LatestRecordMissing,
    ShaleError,
    WalTruncated,
)
from shale.format.names import destroyed_key, manifest_key, sst_key, wal_key
from shale.gc.collector import Collector
from shale.gc.options import GcOptions
from shale.kernels.rows import rows_from_entries
from shale.protocol.checkpoints import create_checkpoint, release_checkpoints
from shale.protocol.manifest_store import ManifestStore, StoredManifest
from shale.protocol.wal_store import WalStore
from shale.sst.wal_builder import build_wal_sst
from shale.types import FLAG_CREATE_TS, Compression, Entry, Manifest, WalId
from shale_spark.source.filters import KeySet
from shale_spark.source.lease import keep_lease, release_lease, renew_if_due
from shale_spark.source.options import SparkReadOptions
from shale_spark.source.planner import plan_read
from shale_spark.source.read_plan import ReadPlan
from shale_spark.source.snapshot import NAME, SnapshotLost
from shale_spark.source.snapshot_frame import hold_lease
from tests.unit.spark.source.databases import Database, entries_of


def run(scenario: Callable[[Database], Awaitable[None]]) -> None:
    """Run a scenario on a small database."""

    async def whole() -> None:
        database = Database(4)
        await database.fill(300)
        await scenario(database)

    anyio.run(whole)


async def stored_in(database: Database) -> StoredManifest:
    return await ManifestStore(database.store, "db", database.env).load()


async def plans_of(database: Database, **options: Any) -> tuple[ReadPlan, ...]:
    return (await plan_read(SparkReadOptions(where=database.where, **options), KeySet(), database.env)).plans


def test_queries_share_a_checkpoint_while_nothing_changes() -> None:
    """Otherwise each query would write a manifest version; another state has another checkpoint."""

    async def scenario(database: Database) -> None:
        first = (await plans_of(database))[0].lease
        assert (await plans_of(database))[0].lease == first
        stored = await stored_in(database)
        assert [each.name for each in stored.value.checkpoints] == [NAME]
        await stored.apply(lambda current: replace(current.value, last_l0_seq=current.value.last_l0_seq + 1))
        assert (await plans_of(database))[0].lease.checkpoint_id != first.checkpoint_id

    run(scenario)


def test_a_shared_checkpoint_is_renewed_when_half_of_its_time_is_over() -> None:
    """An expired checkpoint is not used."""

    async def scenario(database: Database) -> None:
        first = (await plans_of(database, lifetime_s=600.0))[0].lease
        database.clock.shift_ms = 400_000
        second = (await plans_of(database, lifetime_s=600.0))[0].lease
        assert second.checkpoint_id == first.checkpoint_id
        assert second.expire_s >= first.expire_s + 399
        database.clock.shift_ms = 2_000_000
        assert (await plans_of(database, lifetime_s=600.0))[0].lease.checkpoint_id != first.checkpoint_id

    run(scenario)


def test_a_given_checkpoint_is_read_as_it_is() -> None:
    """Without later rows, and without a renewal."""

    async def scenario(database: Database) -> None:
        stored = await stored_in(database)
        last_l0_seq = stored.value.last_l0_seq
        checkpoint = await create_checkpoint(stored, database.env, lifetime_ms=None)
        before = stored.id
        plans = await plans_of(database, checkpoint=checkpoint.id)
        assert await entries_of(plans, database.env) == list(database.live(last_l0_seq).values())
        assert plans[0].lease.lifetime_ms is None
        assert (await stored_in(database)).id == before
        newest = await plans_of(database)
        assert await entries_of(newest, database.env) == list(database.live().values())

    run(scenario)


def test_what_is_written_after_planning_is_not_seen() -> None:
    """Every task sees the state of the plan at any time."""

    async def scenario(database: Database) -> None:
        plans = await plans_of(database, partition_bytes=2000)
        later = rows_from_entries([Entry(b"k00", b"later", 1000, FLAG_CREATE_TS, 1)])
        for wal_id in (7, 8):
            await database.store.put(wal_key("db", wal_id), build_wal_sst(later, Compression.NONE))
        assert await entries_of(plans, database.env) == list(database.live().values())

    run(scenario)


@pytest.mark.parametrize("how", ["deleted", "expired"])
def test_a_lost_checkpoint_is_named(how: str) -> None:
    """A missing object is not reported as corruption then."""

    async def scenario(database: Database) -> None:
        plans = await plans_of(database)
        for sst_id in plans[0].manifest.ssts():
            await database.store.delete(sst_key("db", sst_id))
        if how == "deleted":
            await release_checkpoints(await stored_in(database), [plans[0].lease.checkpoint_id])
        else:
            database.clock.shift_ms = 10**8
            await (await stored_in(database)).apply(lambda current: replace(current.value, checkpoints=()))
        with pytest.raises(SnapshotLost, match=rf"{plans[0].lease.checkpoint_id} of memory://.*/db, .*load"):
            await entries_of(plans, database.env)

    run(scenario)


async def check_read_fails(database: Database, plan: ReadPlan, error: type[ShaleError]) -> None:
    """Advance the clock to the next renewal of the lease and expect that it ends the read."""
    database.clock.shift_ms = 10**7
    pin = Pin(plan.lease.checkpoint_id)
    await keep_lease(plan, pin, DatabaseStores(database.store, None, ()), database.env)
    with pytest.raises(error):
        pin.check()


def test_a_lost_checkpoint_ends_a_read_that_still_goes_well() -> None:
    """Later reads may miss objects; the renewal finds out."""

    async def scenario(database: Database) -> None:
        (plan,) = await plans_of(database)
        await release_checkpoints(await stored_in(database), [plan.lease.checkpoint_id])
        await check_read_fails(database, plan, SnapshotLost)

    run(scenario)


def test_a_database_that_is_gone_ends_a_read() -> None:
    """The error names the database."""

    async def scenario(database: Database) -> None:
        (plan,) = await plans_of(database)
        for version in range(1, (await stored_in(database)).id + 1):
            await database.store.delete(manifest_key("db", version))
        await check_read_fails(database, plan, LatestRecordMissing)

    run(scenario)


def test_tasks_renew_the_checkpoint_together() -> None:
    """One commit for all of them, in the second half of its lifetime, and none in the first."""

    async def scenario(database: Database) -> None:
        plans = await plans_of(database, partition_bytes=2000, lifetime_s=600.0)
        stores = DatabaseStores(database.store, None, ())
        before = await stored_in(database)

        async def renew() -> None:
            async with anyio.create_task_group() as tasks:
                for plan in plans[:4]:
                    tasks.start_soon(renew_if_due, plan, 600_000, stores, database.env)

        await renew()
        assert (await stored_in(database)).id == before.id
        database.clock.shift_ms = 400_000
        await renew()
        after = await stored_in(database)
        assert after.id == before.id + 1
        assert after.value.checkpoints[0].expire_s >= before.value.checkpoints[0].expire_s + 399

    run(scenario)


def test_a_checkpoint_of_another_process_is_not_renewed() -> None:
    """Its owner decides about its lifetime."""

    async def scenario(database: Database) -> None:
        checkpoint = await create_checkpoint(await stored_in(database), database.env, lifetime_ms=60_000)
        (plan,) = await plans_of(database, checkpoint=checkpoint.id)
        database.clock.shift_ms = 50_000
        await keep_lease(plan, Pin(checkpoint.id), DatabaseStores(database.store, None, ()), database.env)
        assert (await stored_in(database)).value.checkpoint(checkpoint.id) == checkpoint

    run(scenario)


def test_a_destroyed_database_is_named() -> None:
    """Before and during a read."""

    async def scenario(database: Database) -> None:
        plans = await plans_of(database)
        await database.store.put(destroyed_key("db"), b"")
        with pytest.raises(InvalidDbState, match="destroyed"):
            await plans_of(database)
        for sst_id in plans[0].manifest.ssts():
            await database.store.delete(sst_key("db", sst_id))
        with pytest.raises(InvalidDbState, match="was destroyed while it was read"):
            await entries_of(plans, database.env)

    run(scenario)


def test_what_cannot_be_read_is_refused_with_its_place() -> None:
    """A wrong path, an incomplete clone, a missing checkpoint, a WAL in another store."""

    async def scenario(database: Database) -> None:
        wrong = replace(database.where, root="other")
        with pytest.raises(LatestRecordMissing, match=r"memory://.*/other: "):
            await plan_read(SparkReadOptions(where=wrong), KeySet(), database.env)
        with pytest.raises(CheckpointMissing, match=str(UUID(int=5))):
            await plans_of(database, checkpoint=UUID(int=5))
        await database.write_manifest(2, Manifest(initialized=False))
        with pytest.raises(InvalidDbState, match="not initialised"):
            await plans_of(database)

    run(scenario)


def test_a_flush_while_a_read_is_planned_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The WAL of the first state may be collected while its end is determined."""
    search = WalStore.last_seen_wal_id
    searches = []

    async def scenario(database: Database) -> None:
        async def flush_first(wal: WalStore, start_after: int, *, has_gaps: bool) -> int:
            searches.append(start_after)
            if len(searches) == 1:
                await database.flush()
                await database.store.delete(wal_key("db", 4))
            return await search(wal, start_after, has_gaps=has_gaps)

        monkeypatch.setattr(WalStore, "last_seen_wal_id", flush_first)
        plans = await plans_of(database)
        assert await entries_of(plans, database.env) == list(database.live().values())
        assert searches == [2, 6]

    run(scenario)


def test_a_task_that_misses_wal_files_fails() -> None:
    """After the checkpoint's last file only their age protects WAL files; a task must not return fewer rows."""

    async def scenario(database: Database) -> None:
        plans = await plans_of(database, tail_bytes=0)
        await database.flush()
        await database.store.delete(wal_key("db", 4))
        with pytest.raises(SnapshotLost, match=r"WAL file 4 is needed but gone: .* flush it before large jobs"):
            await entries_of(plans, database.env)

    run(scenario)


def test_a_task_that_misses_a_wal_file_that_replay_needs_reports_the_loss() -> None:
    async def scenario(database: Database) -> None:
        plans = await plans_of(database, tail_bytes=0)
        await database.store.delete(wal_key("db", 4))
        with pytest.raises(WalTruncated, match=r"wal/0*4.sst: WAL file 4 is needed but gone: restore it"):
            await entries_of(plans, database.env)

    run(scenario)


def test_a_collector_leaves_what_a_query_reads_until_its_lease_is_over() -> None:
    """First the compacted SSTs stay; after the end of the lease, the checkpoint is deleted too."""

    async def scenario(database: Database) -> None:
        plans = await plans_of(database, partition_bytes=2000)
        collector = Collector(database.store, "db", database.env, GcOptions())
        await database.flush()
        await database.compact()
        database.clock.shift_ms = 1_000_000
        await collector.run_once()
        expected = list(database.live().values())
        assert await entries_of(plans, database.env) == expected
        database.clock.shift_ms = 8_000_000
        await collector.run_once()
        assert (await stored_in(database)).value.checkpoints == ()
        with pytest.raises(SnapshotLost):
            await entries_of(plans, database.env)
        assert await entries_of(await plans_of(database), database.env) == expected

    run(scenario)


def test_a_hole_in_the_wal_of_a_checkpoint_is_told() -> None:
    """The file is protected, so its absence is damage; a reader must not silently return fewer rows."""

    async def scenario(database: Database) -> None:
        stored = await stored_in(database)
        await stored.apply(lambda current: replace(current.value, next_wal_sst_id=WalId(7)))
        checkpoint = await create_checkpoint(stored, database.env, lifetime_ms=None)
        await database.store.delete(wal_key("db", 4))
        with pytest.raises(WalTruncated, match="WAL file 4"):
            await plans_of(database, checkpoint=checkpoint.id)

    run(scenario)


def test_wal_files_that_the_manifest_knows_of_are_missed() -> None:
    """An unnamed WAL store causes this; its rows must not be skipped silently."""

    async def scenario(database: Database) -> None:
        stored = await stored_in(database)
        await stored.apply(lambda current: replace(current.value, next_wal_sst_id=WalId(7)))
        assert await entries_of(await plans_of(database), database.env) == list(database.live().values())
        for wal_id in range(3, 7):
            await database.store.delete(wal_key("db", wal_id))
        with pytest.raises(WalTruncated, match="WAL file 3"):
            await plans_of(database)

    run(scenario)


def test_a_plan_that_fails_leaves_no_checkpoint_of_its_own() -> None:
    """No process would delete it, and its lease would pin SSTs."""

    async def scenario(database: Database) -> None:
        stored = await stored_in(database)
        for sst_id in stored.value.ssts():
            await database.store.delete(sst_key("db", sst_id))
        options = SparkReadOptions(where=database.where, partition_bytes=1)
        with pytest.raises(CorruptionError):
            await plan_read(options, KeySet(), database.env, is_shared=False)
        assert (await stored_in(database)).value.checkpoints == ()
        with pytest.raises(CorruptionError):
            await plan_read(options, KeySet(), database.env)
        assert [each.name for each in (await stored_in(database)).value.checkpoints] == [NAME]

    run(scenario)


def test_a_frame_of_ones_own_is_held_while_nothing_reads_it() -> None:
    """The checkpoint lives between two uses of the frame, and is released at the end."""

    async def scenario(database: Database) -> None:
        options = SparkReadOptions(where=database.where, lifetime_s=600.0)
        planned = await plan_read(options, KeySet(), database.env, is_shared=False)
        database.clock.shift_ms = 500_000
        async with hold_lease(planned, database.where, DatabaseStores(database.store, None, ()), database.env):
            with anyio.fail_after(60):
                while (await stored_in(database)).value.checkpoints[0].expire_s <= planned.lease.expire_s:
                    await anyio.lowlevel.checkpoint()
        assert (await stored_in(database)).value.checkpoints == ()

    run(scenario)


def test_a_checkpoint_that_was_given_outlives_the_frame() -> None:
    async def scenario(database: Database) -> None:
        checkpoint = await create_checkpoint(await stored_in(database), database.env, lifetime_ms=60_000)
        options = SparkReadOptions(where=database.where, checkpoint=checkpoint.id)
        planned = await plan_read(options, KeySet(), database.env, is_shared=False)
        async with hold_lease(planned, database.where, DatabaseStores(database.store, None, ()), database.env):
            pass
        assert (await stored_in(database)).value.checkpoints == (checkpoint,)

    run(scenario)


def test_a_checkpoint_that_cannot_be_deleted_spoils_nothing() -> None:
    """The work is done, or has its own error."""

    async def scenario(database: Database) -> None:
        checkpoint = await create_checkpoint(await stored_in(database), database.env, lifetime_ms=60_000)
        for meta in await database.store.list("db/manifest/"):
            await database.store.delete(meta.key)
        with pytest.raises(LatestRecordMissing):
            await stored_in(database)
        await release_lease(database.where, checkpoint.id, DatabaseStores(database.store, None, ()), database.env)

    run(scenario)
