"""What a read sees, what keeps it alive, and what is said when that is gone."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import anyio
import pytest

from shale.engine.pin import Pin
from shale.engine.where import Stores
from shale.errors import CheckpointMissing, CorruptionError, InvalidDbState, LatestRecordMissing, WalTruncated
from shale.format.names import destroyed_key, manifest_key, sst_key, wal_key
from shale.garbage.collector import Collector
from shale.garbage.options import GcOptions
from shale.kernels.rows import rows_from_entries
from shale.protocol.checkpoints import create_checkpoint, release_checkpoints
from shale.protocol.manifest_store import ManifestStore, StoredManifest
from shale.protocol.wal_store import WalStore
from shale.sst.wal_builder import build_wal_sst
from shale.types import FLAG_CREATE_TS, Compression, Entry, Manifest, WalId
from shale_spark.source.filters import KeySet
from shale_spark.source.frame import holding
from shale_spark.source.lease import keep_lease, let_go, renew_if_due
from shale_spark.source.options import ReadOptions
from shale_spark.source.plan import ReadPlan
from shale_spark.source.planning import plan_read
from shale_spark.source.snapshot import NAME, SnapshotLost
from tests.unit.spark.source.databases import Database, entries_of


def run(story: Callable[[Database], Awaitable[None]]) -> None:
    """A story on a small database."""

    async def whole() -> None:
        database = Database(4)
        await database.fill(300)
        await story(database)

    anyio.run(whole)


async def stored_in(database: Database) -> StoredManifest:
    return await ManifestStore(database.store, "db", database.env).load()


async def plans_of(database: Database, **options: Any) -> tuple[ReadPlan, ...]:
    return (await plan_read(ReadOptions(where=database.where, **options), KeySet(), database.env)).plans


def test_queries_share_a_checkpoint_while_nothing_changes() -> None:
    """A manifest version per query would be a burden; another state is another checkpoint."""

    async def story(database: Database) -> None:
        first = (await plans_of(database))[0].lease
        assert (await plans_of(database))[0].lease == first
        stored = await stored_in(database)
        assert [each.name for each in stored.value.checkpoints] == [NAME]
        await stored.apply(lambda current: replace(current.value, last_l0_seq=current.value.last_l0_seq + 1))
        assert (await plans_of(database))[0].lease.checkpoint_id != first.checkpoint_id

    run(story)


def test_a_shared_checkpoint_is_renewed_when_half_of_its_time_is_over() -> None:
    """And an expired one is not taken."""

    async def story(database: Database) -> None:
        first = (await plans_of(database, lifetime_s=600.0))[0].lease
        database.clock.shift_ms = 400_000
        second = (await plans_of(database, lifetime_s=600.0))[0].lease
        assert second.checkpoint_id == first.checkpoint_id
        assert second.expire_s >= first.expire_s + 399
        database.clock.shift_ms = 2_000_000
        assert (await plans_of(database, lifetime_s=600.0))[0].lease.checkpoint_id != first.checkpoint_id

    run(story)


def test_a_given_checkpoint_is_read_as_it_is() -> None:
    """Without the rows that came later, and without a renewal."""

    async def story(database: Database) -> None:
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

    run(story)


def test_what_is_written_after_planning_is_not_seen() -> None:
    """Every task sees the state of the plan, whenever it runs."""

    async def story(database: Database) -> None:
        plans = await plans_of(database, partition_bytes=2000)
        later = rows_from_entries([Entry(b"k00", b"later", 1000, FLAG_CREATE_TS, 1)])
        for wal_id in (7, 8):
            await database.store.put(wal_key("db", wal_id), build_wal_sst(later, Compression.NONE))
        assert await entries_of(plans, database.env) == list(database.live().values())

    run(story)


@pytest.mark.parametrize("how", ["deleted", "expired"])
def test_a_lost_checkpoint_is_named(how: str) -> None:
    """A missing object is then no corruption."""

    async def story(database: Database) -> None:
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

    run(story)


def test_a_lost_checkpoint_ends_a_read_that_still_goes_well() -> None:
    """What it reads next may be gone; the keeper notices when it would renew."""

    async def story(database: Database) -> None:
        (plan,) = await plans_of(database)
        await release_checkpoints(await stored_in(database), [plan.lease.checkpoint_id])
        database.clock.shift_ms = 10**7
        pin = Pin(plan.lease.checkpoint_id)
        await keep_lease(plan, pin, Stores(database.store, None, ()), database.env)
        with pytest.raises(SnapshotLost):
            pin.check()

    run(story)


def test_a_database_that_is_gone_ends_a_read() -> None:
    """With what there is to say about it."""

    async def story(database: Database) -> None:
        (plan,) = await plans_of(database)
        for version in range(1, (await stored_in(database)).id + 1):
            await database.store.delete(manifest_key("db", version))
        database.clock.shift_ms = 10**7
        pin = Pin(plan.lease.checkpoint_id)
        await keep_lease(plan, pin, Stores(database.store, None, ()), database.env)
        with pytest.raises(LatestRecordMissing):
            pin.check()

    run(story)


def test_tasks_renew_the_checkpoint_together() -> None:
    """One commit for all of them, in the second half of its life, and none in the first."""

    async def story(database: Database) -> None:
        plans = await plans_of(database, partition_bytes=2000, lifetime_s=600.0)
        stores = Stores(database.store, None, ())
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

    run(story)


def test_a_checkpoint_of_somebody_else_is_not_renewed() -> None:
    """Its lifetime is theirs to say."""

    async def story(database: Database) -> None:
        checkpoint = await create_checkpoint(await stored_in(database), database.env, lifetime_ms=60_000)
        (plan,) = await plans_of(database, checkpoint=checkpoint.id)
        database.clock.shift_ms = 50_000
        await keep_lease(plan, Pin(checkpoint.id), Stores(database.store, None, ()), database.env)
        assert (await stored_in(database)).value.checkpoint(checkpoint.id) == checkpoint

    run(story)


def test_a_destroyed_database_is_named() -> None:
    """Before and during a read."""

    async def story(database: Database) -> None:
        plans = await plans_of(database)
        await database.store.put(destroyed_key("db"), b"")
        with pytest.raises(InvalidDbState, match="destroyed"):
            await plans_of(database)
        for sst_id in plans[0].manifest.ssts():
            await database.store.delete(sst_key("db", sst_id))
        with pytest.raises(InvalidDbState, match="was destroyed while it was read"):
            await entries_of(plans, database.env)

    run(story)


def test_what_cannot_be_read_is_refused_with_its_place() -> None:
    """A wrong path, half a clone, a checkpoint that is not there, a WAL that is elsewhere."""

    async def story(database: Database) -> None:
        wrong = replace(database.where, root="other")
        with pytest.raises(LatestRecordMissing, match=r"memory://.*/other: "):
            await plan_read(ReadOptions(where=wrong), KeySet(), database.env)
        with pytest.raises(CheckpointMissing, match=str(UUID(int=5))):
            await plans_of(database, checkpoint=UUID(int=5))
        await database.write_manifest(2, Manifest(initialized=False))
        with pytest.raises(InvalidDbState, match="not initialised"):
            await plans_of(database)

    run(story)


def test_a_flush_while_a_read_is_planned_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The WAL of the state that was found first may be collected while its end is looked for."""
    search = WalStore.last_seen_wal_id
    searches = []

    async def story(database: Database) -> None:
        async def flush_first(wal: WalStore, start_after: int) -> int:
            searches.append(start_after)
            if len(searches) == 1:
                await database.flush()
                await database.store.delete(wal_key("db", 4))
            return await search(wal, start_after)

        monkeypatch.setattr(WalStore, "last_seen_wal_id", flush_first)
        plans = await plans_of(database)
        assert await entries_of(plans, database.env) == list(database.live().values())
        assert searches == [2, 6]

    run(story)


def test_a_task_that_misses_wal_files_fails() -> None:
    """Beyond the checkpoint's own last file only their age protects them; a task must not show less."""

    async def story(database: Database) -> None:
        plans = await plans_of(database, tail_bytes=0)
        await database.flush()
        await database.store.delete(wal_key("db", 4))
        with pytest.raises(SnapshotLost, match=r"WAL file 4 is needed but gone: .* flush it before large jobs"):
            await entries_of(plans, database.env)

    run(story)


def test_a_collector_leaves_what_a_query_reads_until_its_lease_is_over() -> None:
    """SSTs that were compacted away, and then, once the lease has ended, not even the checkpoint stays."""

    async def story(database: Database) -> None:
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

    run(story)


def test_a_hole_in_the_wal_of_a_checkpoint_is_told() -> None:
    """It is protected, so it is damage; a reader must not serve less in silence."""

    async def story(database: Database) -> None:
        stored = await stored_in(database)
        await stored.apply(lambda current: replace(current.value, next_wal_sst_id=WalId(7)))
        checkpoint = await create_checkpoint(stored, database.env, lifetime_ms=None)
        await database.store.delete(wal_key("db", 4))
        with pytest.raises(WalTruncated, match="WAL file 4"):
            await plans_of(database, checkpoint=checkpoint.id)

    run(story)


def test_wal_files_that_the_manifest_knows_of_are_missed() -> None:
    """As where the WAL has a store of its own that was not named; its rows must not be left out in silence."""

    async def story(database: Database) -> None:
        stored = await stored_in(database)
        await stored.apply(lambda current: replace(current.value, next_wal_sst_id=WalId(7)))
        assert await entries_of(await plans_of(database), database.env) == list(database.live().values())
        for wal_id in range(3, 7):
            await database.store.delete(wal_key("db", wal_id))
        with pytest.raises(WalTruncated, match="WAL file 3"):
            await plans_of(database)

    run(story)


def test_a_plan_that_fails_leaves_no_checkpoint_of_its_own() -> None:
    """Nobody would delete it, and its lease would keep SSTs from the collector."""

    async def story(database: Database) -> None:
        stored = await stored_in(database)
        for sst_id in stored.value.ssts():
            await database.store.delete(sst_key("db", sst_id))
        options = ReadOptions(where=database.where, partition_bytes=1)
        with pytest.raises(CorruptionError):
            await plan_read(options, KeySet(), database.env, is_shared=False)
        assert (await stored_in(database)).value.checkpoints == ()
        with pytest.raises(CorruptionError):
            await plan_read(options, KeySet(), database.env)
        assert [each.name for each in (await stored_in(database)).value.checkpoints] == [NAME]

    run(story)


def test_a_frame_of_ones_own_is_held_while_nothing_reads_it() -> None:
    """Whatever the work does between two uses of it; and it is let go at the end."""

    async def story(database: Database) -> None:
        options = ReadOptions(where=database.where, lifetime_s=600.0)
        planned = await plan_read(options, KeySet(), database.env, is_shared=False)
        database.clock.shift_ms = 500_000
        async with holding(planned, database.where, Stores(database.store, None, ()), database.env):
            with anyio.fail_after(60):
                while (await stored_in(database)).value.checkpoints[0].expire_s <= planned.lease.expire_s:
                    await anyio.lowlevel.checkpoint()
        assert (await stored_in(database)).value.checkpoints == ()

    run(story)


def test_a_checkpoint_that_was_given_outlives_the_frame() -> None:
    async def story(database: Database) -> None:
        checkpoint = await create_checkpoint(await stored_in(database), database.env, lifetime_ms=60_000)
        options = ReadOptions(where=database.where, checkpoint=checkpoint.id)
        planned = await plan_read(options, KeySet(), database.env, is_shared=False)
        async with holding(planned, database.where, Stores(database.store, None, ()), database.env):
            pass
        assert (await stored_in(database)).value.checkpoints == (checkpoint,)

    run(story)


def test_a_checkpoint_that_cannot_be_deleted_spoils_nothing() -> None:
    """The work is done, or has an error of its own to tell."""

    async def story(database: Database) -> None:
        checkpoint = await create_checkpoint(await stored_in(database), database.env, lifetime_ms=60_000)
        for meta in await database.store.list("db/manifest/"):
            await database.store.delete(meta.key)
        with pytest.raises(LatestRecordMissing):
            await stored_in(database)
        await let_go(database.where, checkpoint.id, Stores(database.store, None, ()), database.env)

    run(story)
