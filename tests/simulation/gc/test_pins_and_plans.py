"""The collector and the objects that pin files: checkpoints, filters and saved plans.

Source: docs/reference/protocol.md 16.5.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

import anyio
import pytest

from shale.errors import InvalidDeletion, LatestRecordMissing
from shale.format.names import manifest_key, sst_key
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, Task
from shale.gc.plan import GcPlan
from shale.gc.planner import SstFile, cutoff_for_ssts, plan_compacted_gc, plan_manifest_gc, plan_wal_gc
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.wal_store import WalStore
from shale.store.port import OVERWRITE
from shale.testing.sim_process import START_MS
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale.types import Checkpoint, Manifest, ManifestId, Ulid, WalId
from tests.simulation.conftest import simulated
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.gc.harness import (
    ROOT,
    Work,
    collect_once,
    collector,
    compactions_of,
    load_existing,
    manifests_of,
    quick,
    start_work,
)
from tests.simulation.gc.test_collector import MANIFESTS, collected, deletions, watched

CALM = SimOptions(latency_s=0.02, list_page=3)
"""Listings take many requests, between which anything may happen."""


async def pin(process: SimProcess, *, source: bool, at_s: float) -> Checkpoint:
    """Create a checkpoint of the newest state or of the version of another checkpoint."""
    await anyio.sleep(at_s)
    stored = await manifests_of(process).load()
    found = [each for each in stored.value.checkpoints if not each.expire_s]
    source_id = found[0].id if source else None
    return await create_checkpoint(stored, process.env, lifetime_ms=None, source=source_id)


def is_kept(sim: Simulation, made: SimProcess) -> bool:
    assert made.error is None
    assert isinstance(made.result, Checkpoint)
    return manifest_key(ROOT, made.result.manifest_id) in sim.objects()


@pytest.mark.fault("F5.2")
@simulated
def test_a_checkpoint_of_a_checkpoint_made_during_a_stalled_pass_loses_nothing(seed: int) -> None:
    """The collector has its candidates and sleeps before it deletes; the new checkpoint names pinned objects only."""
    chance = random.Random(f"{seed}/test")
    sim, rules = watched(seed, CALM)
    with sim:
        sim.watch(rules)
        start_work(sim, Work(rounds=8, pause_s=10.0))
        first = sim.start(pin, "first", role="admin", source=False, at_s=60.0)
        sim.run(minutes=6)
        gc = sim.start(collector, role="gc", options=quick())
        gc.freeze_before("delete", MANIFESTS, 600, skip=chance.randrange(4))
        second = sim.start(pin, "second", role="admin", source=True, at_s=chance.uniform(0, 300))
        sim.run(minutes=30)
        assert gc.error is None
        assert is_kept(sim, first)
        assert is_kept(sim, second)
        assert deletions(sim, "gc", MANIFESTS), "nothing happened"


@pytest.mark.fault("F5.3")
@simulated
def test_a_checkpoint_of_a_version_missing_from_the_listing_loses_nothing(seed: int) -> None:
    """The collector sleeps within its listing, or right after it."""
    chance = random.Random(f"{seed}/test")
    sim, rules = watched(seed, CALM)
    with sim:
        sim.watch(rules)
        start_work(sim, Work(rounds=10, pause_s=10.0))
        sim.run(minutes=3)
        gc = sim.start(collector, role="gc", options=quick())
        gc.freeze_after("list", MANIFESTS, 300, skip=chance.randrange(8))
        made = [
            sim.start(pin, f"pin-{number}", role="admin", source=False, at_s=chance.uniform(0, 200))
            for number in range(3)
        ]
        sim.run(minutes=30)
        assert gc.error is None
        assert all(is_kept(sim, each) for each in made)
        assert deletions(sim, "gc", MANIFESTS), "nothing happened"


@pytest.mark.fault("F5.4")
@pytest.mark.parametrize(("at_s", "kept"), [(100.0, False), (99.999, True)])
def test_a_checkpoint_is_removed_at_its_expire_time(at_s: float, kept: bool) -> None:
    """It is removed at exactly that millisecond, and the manifest that only it pinned goes in the same pass."""
    assert START_MS % 1000 == 0
    lease = Checkpoint(id=UUID(int=5), manifest_id=ManifestId(1), expire_s=START_MS // 1000 + 100, create_s=1)
    left = collected(at_s, 1.0, manifests=[Manifest(), Manifest(checkpoints=(lease,))])
    assert (manifest_key(ROOT, 1) in left) is kept
    assert (manifest_key(ROOT, 3) in left) is not kept, "the version without the checkpoint"


async def plain_collector(process: SimProcess, *, min_age_ms: int) -> None:
    """Run a reference collector with SlateDB's rules: whole listings, one deletion after the other."""
    manifests, compactions = manifests_of(process), compactions_of(process)
    wal = WalStore(process.store, ROOT)
    while True:
        await anyio.sleep(process.rng.uniform(20, 60))
        now_ms = process.env.clock.now_ms()
        jobs = await compactions.try_read_latest()
        try:
            latest = await manifests.read_latest()
        except LatestRecordMissing:
            continue
        ids = {checkpoint.manifest_id for checkpoint in latest.value.checkpoints}
        pinned = [found for id_ in ids if (found := await manifests.read(id_)) is not None]
        if len(pinned) < len(ids):
            continue
        cutoff = cutoff_for_ssts(
            latest.value, jobs.value if jobs is not None else None, now_ms=now_ms, min_age_ms=min_age_ms
        )
        active = {sst for manifest in (latest.value, *pinned) for sst in manifest.ssts()}
        files = [
            SstFile(id_, meta.size)
            for meta in await process.store.list(f"{ROOT}/compacted/")
            if (id_ := Ulid.parse(meta.key[-30:-4])) is not None
        ]
        for file in plan_compacted_gc(files, active=active, cutoff=cutoff):
            await process.store.delete(sst_key(ROOT, file.id))
        for each in plan_wal_gc(
            await wal.list(), latest=latest.value, checkpointed=pinned, fences=False, now_ms=now_ms,
            min_age_ms=min_age_ms,
        ):  # fmt: skip
            await wal.delete(each.id)
        versions = await manifests.list_versions()
        newest = await manifests.read(versions[-1].id) if versions else None
        if newest is None:
            continue
        keep = {checkpoint.manifest_id for checkpoint in newest.checkpoints}
        plan = plan_manifest_gc(versions, pinned=keep, now_ms=now_ms, min_age_ms=min_age_ms)
        if plan.boundary is not None:
            await manifests.advance_boundary(plan.boundary)
            for version in plan.candidates:
                await manifests.delete(version.id)


@pytest.mark.fault("F5.9")
@row("ours was first somewhere", "the other one was first somewhere")
def test_collectors_of_both_libraries_delete_nothing_live(seed: int, reached: CoverageMarks) -> None:
    """A deletion by the other collector is no error, and no referenced object is deleted."""
    chance = random.Random(f"{seed}/test")
    sim, rules = watched(seed, replace(CALM, latency_s=chance.choice((0.02, 1.0))))
    with sim:
        sim.watch(rules)
        work = start_work(sim, Work(rounds=10, pause_s=10.0))
        ours = sim.start(collector, "ours", role="gc", options=quick(interval_s=30.0, min_age_s=10.0))
        other = sim.start(plain_collector, "other", role="gc", min_age_ms=10_000)
        sim.run(minutes=30)
        assert all(process.error is None for process in (ours, other, *work))
        by_ours, by_other = deletions(sim, "ours", "/"), deletions(sim, "other", "/")
        assert by_ours or by_other, "nothing happened"
        reached("ours was first somewhere", when=bool(by_ours))
        reached("the other one was first somewhere", when=bool(by_other))


@pytest.mark.fault("F5.14")
@simulated
def test_a_gc_filter_cannot_add_deletions(seed: int) -> None:
    """The filter names every object and keeps half of the candidates."""
    chance = random.Random(f"{seed}/test")
    kept: dict[str, float] = {}

    async def choose(task: Task, keys: Sequence[str]) -> Iterable[str]:
        del task
        for key in chance.sample(list(keys), len(keys) // 2):
            kept.setdefault(key, sim.loop.time())
        return [key for key in (*keys, *sim.objects()) if key not in kept]

    sim, rules = watched(seed, CALM)
    with sim:
        sim.watch(rules)
        start_work(sim, Work(rounds=8, pause_s=10.0))
        gc = sim.start(collector, role="gc", options=quick(interval_s=30.0, filter=choose))
        sim.run(minutes=20)
        assert gc.error is None
        gone = deletions(sim, "gc", "/")
        assert gone
        assert kept
        # A version that was deleted may come back, behind the boundary, by the hand of a sleeper, and be kept then.
        assert not [each.key for each in gone if each.key in kept and each.time_s > kept[each.key]]


@pytest.mark.fault("F5.16")
@simulated
def test_a_clock_ahead_by_less_than_min_age_deletes_nothing_live(seed: int) -> None:
    """No object is deleted before its manifest is written."""
    sim, rules = watched(seed, CALM)
    with sim:
        sim.watch(rules)
        work = start_work(sim, Work(rounds=10, pause_s=10.0, publish_s=30.0, work_s=30.0))
        gc = sim.start(collector, role="gc", options=quick(min_age_s=300.0, interval_s=30.0))
        gc.clock.skew_ms = 299_000
        sim.run(minutes=45)
        assert all(process.error is None for process in (gc, *work))
        assert deletions(sim, "gc", "/"), "nothing happened"


async def plans_and_collects(process: SimProcess, *, options: GcOptions, pause_s: float) -> tuple[int, int]:
    """Plan, pause and execute the plan repeatedly; return how many plans were refused and how many were executed."""
    refused = done = 0
    await load_existing(manifests_of(process))
    while process.sim.loop.time() < 1200:
        gc = Collector(process.store, ROOT, process.env, options, process.metrics)
        before = process.sim.objects()
        plan = GcPlan.from_json((await gc.plan()).as_json())
        assert {each.key for each in plan.objects} <= before.keys() | process.sim.objects().keys()
        await anyio.sleep(process.rng.uniform(0, pause_s))
        try:
            await gc.execute(plan)
        except InvalidDeletion:
            refused += 1
        else:
            done += 1
    return refused, done


@simulated
def test_saved_plans_delete_nothing_that_came_to_be_needed(seed: int) -> None:
    sim, rules = watched(seed, CALM)
    with sim:
        sim.watch(rules)
        start_work(sim, Work(rounds=20, pause_s=20.0))
        gc = sim.start(plans_and_collects, "gc", role="gc", options=quick(min_age_s=5.0), pause_s=60.0)
        sim.run(minutes=25)
        assert gc.error is None
        assert isinstance(gc.result, tuple)
        assert gc.result[1] > 0
        assert deletions(sim, "gc", "/")


def test_listings_of_many_pages_are_whole() -> None:
    """With pages of three objects no object between two pages is missed."""
    with Simulation(1, options=SimOptions(latency_s=0.0, list_page=3)) as sim:

        async def plant_many(process: SimProcess) -> None:
            stored = await manifests_of(process).create_new(Manifest())
            for _ in range(9):
                await stored.apply(lambda current: current.value)
            late = Manifest(replay_after_wal_id=WalId(20), next_wal_sst_id=WalId(21))
            await stored.apply(lambda _: late)
            for wal_id in range(1, 21):
                await process.store.put(f"{ROOT}/wal/{wal_id:020}.sst", b"rows", mode=OVERWRITE)

        sim.start(plant_many, role="writer")
        sim.run(seconds=10)
        gc = sim.start(collect_once, role="gc", options=quick(), at_s=20.0)
        sim.run(minutes=5)
        assert gc.error is None
        left = sim.objects()
        assert [key for key in left if "/wal/" in key] == [f"{ROOT}/wal/{20:020}.sst"]
        assert [key for key in left if "/manifest/" in key] == [manifest_key(ROOT, 11)]
