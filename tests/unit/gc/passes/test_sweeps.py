"""The sweeps of a collector on a store: which objects go, what is counted, and errors that keep everything."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from shale.errors import (
    CorruptionError,
    LatestRecordMissing,
    ManifestMissing,
    ProtocolPanic,
    ShaleError,
    UnavailableError,
)
from shale.format.names import (
    boundary_key,
    compaction_record_key,
    compactions_key,
    destroyed_key,
    manifest_key,
    sst_key,
    wal_key,
)
from shale.gc.database import GcDatabase
from shale.gc.metrics import GcMetrics
from shale.gc.options import Task
from shale.gc.passes import Pass
from shale.gc.sweeps import sweep_manifests
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.store.memory import MemoryStore
from shale.store.port import ObjectMeta
from shale.types import (
    Compaction,
    Compactions,
    CompactionStatus,
    Manifest,
    RunId,
    TieredSpec,
    WalId,
)
from tests.clocks import START_MS, ManualClock
from tests.unit.gc.passes.collector_world import AGE_S, YOUNG, World, checkpoint, with_wal_elsewhere
from tests.unit.gc.values import external, tree, ulid
from tests.unit.protocol.conftest import run


def test_old_manifests_go_and_the_boundary_is_the_highest_of_them() -> None:
    async def main() -> None:
        world = World()
        await world.write(Manifest(), Manifest(), Manifest(), Manifest(checkpoints=(checkpoint(1, 2),)))
        sizes = [world.store.objects[manifest_key("db", id_)].meta.size for id_ in range(1, 5)]
        world.clock.sleep(AGE_S + 1)
        collector = world.collector()
        await collector.sweep(Task.MANIFEST)
        assert world.below("manifest") == [manifest_key("db", 2), manifest_key("db", 4)]
        assert world.store.objects[boundary_key("db", "manifest")].data == b"3"
        progress = collector.states[Task.MANIFEST].progress
        assert (progress.listed, progress.listed_bytes) == (4, sum(sizes))
        assert (progress.planned, progress.deleted) == (2, 2)
        assert progress.deleted_bytes == progress.planned_bytes == sizes[0] + sizes[2]
        assert world.value("gc_versions", resource="manifest") == 2

    run(main)


def test_a_database_without_a_manifest_is_named() -> None:
    async def main() -> None:
        world = World()
        database = GcDatabase.at(world.store, "", world.env, world.metrics, ProtocolOptions())
        this = Pass(
            task=Task.MANIFEST,
            now_ms=world.clock.ms,
            options=YOUNG,
            instruments=GcMetrics(world.metrics),
            delete_concurrency=1,
            clock=world.clock,
        )
        with pytest.raises(LatestRecordMissing, match="no manifest below /"):
            await sweep_manifests(database, this)

    run(main)


class Vanishing(MemoryStore):
    """Its listings name a newest manifest that is gone when it is read."""

    vanished = 0

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        async for page in super().list_pages(prefix, after=after):
            yield page
        if prefix == "db/manifest/" and self.vanished:
            self.vanished -= 1
            yield [ObjectMeta(manifest_key("db", 90 + self.vanished), 1, 0)]


@pytest.mark.parametrize(("vanished", "is_read"), [(2, True), (3, False)])
def test_a_newest_manifest_that_vanishes_is_listed_again(vanished: int, is_read: bool) -> None:
    async def main() -> None:
        store = Vanishing(ManualClock())
        world = World(store)
        await world.write(Manifest(), Manifest())
        database = GcDatabase.at(world.store, "db", world.env, world.metrics, ProtocolOptions())
        this = Pass(
            task=Task.MANIFEST,
            now_ms=world.clock.ms + 1_000_000,
            options=YOUNG,
            instruments=GcMetrics(world.metrics),
            delete_concurrency=1,
            clock=world.clock,
        )
        store.vanished = vanished
        if is_read:
            await sweep_manifests(database, this)
            assert world.below("manifest") == [manifest_key("db", 2)]
        else:
            with pytest.raises(ManifestMissing, match="90"):
                await sweep_manifests(database, this)

    run(main)


@pytest.mark.parametrize("task", [Task.COMPACTED, Task.WAL, Task.DETACH])
def test_a_checkpoint_without_its_manifest_stops_a_pass(task: Task) -> None:
    async def main() -> None:
        world = World()
        latest = Manifest(checkpoints=(checkpoint(1, 1),), replay_after_wal_id=WalId(9), next_wal_sst_id=WalId(10))
        await world.write(Manifest(), latest)
        await world.store.put(wal_key("db", 1), b"x")
        await world.store.delete(manifest_key("db", 1))
        world.clock.sleep(AGE_S + 1)
        collector = world.collector()
        with pytest.raises(ManifestMissing):
            await collector.sweep(task)
        state = collector.states[task]
        assert (state.is_running, state.last_success_ms) == (False, None)
        assert "1" in (state.last_error or "")
        assert world.below("wal") == [wal_key("db", 1)]
        assert world.value("gc_runs_total", resource=task, result="error") == 1
        assert world.value("gc_runs_total", resource=task, result="ok") == 0

    run(main)


async def with_ssts(world: World) -> None:
    """Write SSTs that the newest manifest, a checkpoint, or nothing needs, and one that is young."""
    old = START_MS - 10_000_000
    pinned = Manifest(tree=tree(runs=[old + 2]))
    latest = Manifest(tree=tree(l0=[START_MS], runs=[old + 1]), checkpoints=(checkpoint(1, 1),))
    await world.write(pinned, latest)
    job = Compaction(id=ulid(START_MS), spec=TieredSpec(destination=RunId(0)), status=CompactionStatus.COMPLETED)
    await CompactionsStore(world.store, "db", world.env).create_new(Compactions(entries=(job,)))
    for ms in (old + 1, old + 2, old + 3, old + 4, START_MS - 1000, START_MS):
        await world.store.put(sst_key("db", ulid(ms)), b"12345")


def test_ssts_that_no_manifest_names_go_by_the_time_in_their_ids() -> None:
    async def main() -> None:
        world = World()
        await with_ssts(world)
        collector = world.collector()
        await collector.sweep(Task.COMPACTED)
        old = START_MS - 10_000_000
        assert world.below("compacted") == [
            sst_key("db", ulid(ms)) for ms in (old + 1, old + 2, START_MS - 1000, START_MS)
        ]
        progress = collector.states[Task.COMPACTED].progress
        assert (progress.listed, progress.listed_bytes) == (6, 30)
        assert (progress.deleted, progress.deleted_bytes) == (2, 10)
        terms = {
            "min_age": START_MS - AGE_S * 1000, "compactions": START_MS, "newest_l0": START_MS,
            "final": START_MS - AGE_S * 1000,
        }  # fmt: skip
        for term, ms in terms.items():
            assert world.value("gc_cutoff_timestamp_seconds", term=term) == ms / 1000

    run(main)


def test_wal_files_and_fences_go_by_tasks_of_their_own() -> None:
    async def main() -> None:
        world = World()
        state = Manifest(replay_after_wal_id=WalId(5), next_wal_sst_id=WalId(6))
        pinned = Manifest(replay_after_wal_id=WalId(1), next_wal_sst_id=WalId(3))
        latest = replace(state, checkpoints=(checkpoint(1, 1), checkpoint(2, 2, name="changes:x")))
        await world.write(pinned, replace(pinned, replay_after_wal_id=WalId(2)), latest)
        for wal_id in range(1, 7):
            await world.store.put(wal_key("db", wal_id), b"" if wal_id in (4, 6) else b"rows")
        world.clock.sleep(8 * 86_400)
        collector = world.collector()
        await collector.sweep(Task.WAL)
        assert world.below("wal") == [wal_key("db", wal_id) for wal_id in (2, 3, 4, 5, 6)]
        progress = collector.states[Task.WAL].progress
        assert (progress.listed, progress.listed_bytes) == (6, 16)
        await world.manifests.commit(3, replace(latest, checkpoints=()))
        await world.collector().sweep(Task.WAL_FENCE)
        assert world.below("wal") == [wal_key("db", wal_id) for wal_id in (2, 3, 5, 6)]
        await world.collector().sweep(Task.WAL)
        assert world.below("wal") == [wal_key("db", wal_id) for wal_id in (5, 6)]

    run(main)


def test_the_wal_of_another_store_is_not_searched_in_this_one() -> None:
    async def main() -> None:
        world = World()
        await with_wal_elsewhere(world)
        own = world.collector(wal_store=MemoryStore(world.clock))
        assert own.database.has_own_wal_store
        assert not world.collector().database.has_own_wal_store
        await own.sweep(Task.WAL)

    run(main)


@pytest.mark.parametrize(
    ("url", "root", "name"), [("memory:///", "db", "memory:///db"), ("s3://bucket", "a/db", "s3://bucket/a/db")]
)
def test_the_name_of_a_database(url: str, root: str, name: str) -> None:
    world = World()
    store = MemoryStore(url=url)
    assert GcDatabase.at(store, root, world.env, world.metrics, ProtocolOptions()).name == name


def test_parents_that_no_version_reads_are_released() -> None:
    async def main() -> None:
        world = World()
        parents = ManifestStore(world.store, "parent", world.env)
        await parents.create_new(Manifest(checkpoints=(checkpoint(1, 1), checkpoint(2, 1), checkpoint(3, 1))))
        clone = Manifest(
            tree=tree(l0=[5]),
            external_dbs=(
                external("parent", final=1),
                external("parent", final=2, ssts=[5]),
                external("gone", final=3),
                external("parent", final=None),
            ),
        )
        await world.write(clone)
        collector = world.collector()
        await collector.sweep(Task.DETACH, dry_run=True)
        assert collector.states[Task.DETACH].progress.planned == 2
        assert (await world.manifests.read_latest()).id == 1
        await collector.sweep(Task.DETACH)
        latest = await world.manifests.read_latest()
        assert latest.value.external_dbs == (clone.external_dbs[1], clone.external_dbs[3])
        assert [each.id.int for each in (await parents.read_latest()).value.checkpoints] == [2, 3]
        progress = collector.states[Task.DETACH].progress
        assert (progress.planned, progress.deleted, progress.deleted_bytes) == (2, 2, 0)
        assert world.value("gc_detached_clones_total") == 2
        assert world.value("gc_deleted_bytes_total", resource="detach") == 0
        assert progress.planned_bytes == 0
        assert world.value("gc_deleted_objects_total", resource="detach") == 2
        await collector.sweep(Task.DETACH)
        assert (await world.manifests.read_latest()).id == latest.id

    run(main)


class Unlistable(MemoryStore):
    """No database below ``away`` can be listed."""

    error: ShaleError = UnavailableError("away")

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        if prefix.startswith("away/"):
            raise self.error
        async for page in super().list_pages(prefix, after=after):
            yield page


def test_a_parent_that_cannot_be_asked_is_kept_and_the_others_are_released() -> None:
    async def main() -> None:
        world = World(Unlistable())
        await world.store.put(destroyed_key("marked"), b"{}")
        await world.write(
            Manifest(external_dbs=(external("away", final=1), external("gone", final=2), external("marked", final=3)))
        )
        collector = world.collector()
        await collector.sweep(Task.DETACH)
        left = (await world.manifests.read_latest()).value.external_dbs
        assert [each.path for each in left] == ["away", "marked"], "a marked parent may still have objects"
        assert world.value("gc_errors_total", resource="detach", error_type="network") == 1
        assert world.value("gc_detached_clones_total") == 1

    run(main)


def test_a_panic_about_a_parent_ends_the_pass_and_releases_nothing() -> None:
    async def main() -> None:
        store = Unlistable()
        store.error = ProtocolPanic("the store lies")
        world = World(store)
        await world.write(Manifest(external_dbs=(external("gone", final=1), external("away", final=2))))
        with pytest.raises(ProtocolPanic, match="the store lies"):
            await world.collector().sweep(Task.DETACH)
        assert (await world.manifests.read_latest()).id == 1
        assert world.value("gc_detached_clones_total") == 0

    run(main)


def test_expired_checkpoints_are_removed_before_a_pass() -> None:
    async def main() -> None:
        world = World()
        now_s = START_MS // 1000
        checkpoints = (checkpoint(1, 1, expire_s=now_s), checkpoint(2, 1, expire_s=now_s + 1), checkpoint(3, 1))
        await world.write(Manifest(checkpoints=checkpoints))
        collector = world.collector()
        gauge = "checkpoints"
        await collector.sweep(Task.WAL, dry_run=True)
        assert [world.value(gauge, state=state) for state in ("expired", "active", "no_expiry")] == [1, 1, 1]
        await collector.sweep(Task.WAL, only=frozenset())
        assert (await world.manifests.read_latest()).id == 1, "a saved plan changes nothing else"
        await collector.sweep(Task.WAL)
        assert [world.value(gauge, state=state) for state in ("expired", "active", "no_expiry")] == [0, 1, 1]
        assert world.value("checkpoint_operations_total", component="gc", op="expire", result="ok") == 1
        assert (await world.manifests.read_latest()).value.checkpoints == checkpoints[1:]

    run(main)


def test_other_names_beside_ssts_are_logged_unless_they_are_staging_files(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        world = World()
        await with_ssts(world)
        names = ("notes.txt", f"{sst_key('x', ulid(1)).rpartition('/')[2]}#1")
        for name in names:
            await world.store.put(f"db/compacted/{name}", b"x")
        await world.collector().sweep(Task.COMPACTED)
        assert {f"db/compacted/{name}" for name in names} <= set(world.store.objects)

    run(main)
    logged = [line for record in caplog.records if "sequenced.list.unknown_file" in (line := record.getMessage())]
    assert [("notes.txt" in line, "#1" in line) for line in logged] == [(True, False)]


def test_two_compactions_files_are_read_before_the_older_one_goes() -> None:
    async def main() -> None:
        world = World()
        await world.write(Manifest())
        compactions = CompactionsStore(world.store, "db", world.env)
        await compactions.create_new(Compactions())
        await world.store.put(compactions_key("db", 2), b"damaged")
        world.clock.sleep(AGE_S + 1)
        with pytest.raises(CorruptionError, match=compactions_key("db", 2)):
            await world.collector().sweep(Task.COMPACTIONS)
        assert world.below("compactions") == [compactions_key("db", 1), compactions_key("db", 2)]
        await world.store.delete(compactions_key("db", 1))
        await world.collector().sweep(Task.COMPACTIONS)

    run(main)


def test_records_and_files_of_compactions_are_counted_together() -> None:
    async def main() -> None:
        world = World()
        await world.write(Manifest())
        compactions = CompactionsStore(world.store, "db", world.env)
        stored = await compactions.create_new(Compactions())
        await stored.apply(lambda current: current.value)
        for ms in (1, 2):
            await world.store.put(compaction_record_key("db", ulid(ms)), b"12345")
        sizes = sum(value.meta.size for key, value in world.store.objects.items() if "/compactions/" in key)
        world.clock.sleep(8 * 86_400)
        collector = world.collector()
        await collector.sweep(Task.COMPACTIONS)
        progress = collector.states[Task.COMPACTIONS].progress
        assert (progress.listed, progress.listed_bytes) == (4, sizes + 10)
        assert (progress.planned, progress.deleted) == (3, 3)
        assert world.value("gc_candidates", resource="compactions") == 3
        assert world.value("gc_versions", resource="compactions") == 1
        assert world.below("compaction_records") == []

    run(main)
