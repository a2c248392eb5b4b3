"""The collector beside a writer, a compactor, administrators and other collectors.

Source: docs/reference/protocol.md 16.1, 16.5.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from shale.errors import ShaleError, UnavailableError
from shale.format.names import boundary_key, compactions_key, manifest_key, sst_key, wal_key
from shale.gc import sweeps
from shale.gc.planner import Cutoff
from shale.protocol.versioned_store import VersionedStore
from shale.store.port import CREATE, OVERWRITE, ObjectStore
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.faults import Fault
from shale.testing.mutation_log import Mutation
from shale.testing.sim_process import START_MS
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale.types import (
    Checkpoint,
    Compaction,
    Compactions,
    Manifest,
    ManifestId,
    RunId,
    SortedRun,
    Sst,
    SstInfo,
    SstView,
    TieredSpec,
    Tree,
    Ulid,
    WalId,
    WorkerClaim,
)
from tests.simulation.conftest import seeds, simulated
from tests.simulation.gc.harness import (
    COMPLETED,
    ROOT,
    RUNNING,
    Work,
    collect_once,
    collector,
    compactions_of,
    manifests_of,
    quick,
    start_work,
)
from tests.simulation.mutations import seed_that_fails

MANIFESTS, COMPACTIONS = f"{ROOT}/manifest/", f"{ROOT}/compactions/"


def watched(
    seed: int, options: SimOptions | None = None, *, swarm: bool = False
) -> tuple[Simulation, DatabaseInvariants]:
    sim = Simulation(seed, options=options, swarm=swarm)
    return sim, DatabaseInvariants(ROOT)


def deletions(sim: Simulation, process: str, key_part: str) -> list[Mutation]:
    return [each for each in sim.history.of(key_part) if each.op == "delete" and each.process == process]


@pytest.mark.fault("F5.1")
@simulated
def test_a_collector_stalled_between_its_two_reads_deletes_nothing_live(seed: int) -> None:
    """The collector has read the compactions; before it reads the manifest, jobs commit and new ones upload outputs."""
    chance = random.Random(f"{seed}/test")
    sim, rules = watched(seed, SimOptions(latency_s=0.02))
    with sim:
        sim.watch(rules)
        work = start_work(sim, Work())
        gc = sim.start(collector, role="gc", options=quick(min_age_s=chance.choice((0.0, 30.0))))
        for number in range(4):
            gc.freeze_after("get", COMPACTIONS, chance.uniform(10, 300), skip=chance.randrange(3) + 3 * number)
        sim.run(minutes=40)
        assert all(process.error is None for process in (gc, *work))
        assert deletions(sim, "gc", "/"), "nothing happened"


@pytest.mark.fault("F5.17")
@simulated
def test_a_collector_stalled_at_any_request_deletes_nothing_live(seed: int) -> None:
    """Any request stalls for an hour, and the id of a finished job is in the future, so only the start bounds GC."""
    chance = random.Random(f"{seed}/test")
    sim, rules = watched(seed, SimOptions(latency_s=0.02))
    with sim:
        sim.watch(rules)
        work = start_work(sim, Work(id_ahead_ms=chance.choice((0, 600_000)), pause_s=chance.choice((20.0, 600.0))))
        gc = sim.start(collector, role="gc", options=quick(min_age_s=chance.choice((0.0, 30.0)), interval_s=300.0))
        for _ in range(4):
            gc.freeze_before(chance.choice(("get", "list", "put", "delete")), "", 3600, skip=chance.randrange(60))
        sim.run(hours=5)
        assert all(process.error is None for process in (gc, *work))
        assert deletions(sim, "gc", "/"), "nothing happened"


@simulated
def test_two_collectors_in_a_swarm_of_faults(seed: int) -> None:
    """After any failure, freeze or death: no object in use is deleted, and garbage is deleted in the end."""
    sim, rules = watched(seed, swarm=True)
    with sim:
        sim.watch(rules)
        sim.restart_killed(60)
        start_work(sim, Work(rounds=8))
        for name in ("gc-a", "gc-b"):
            min_age_s = sim.rng.choice((10.0, 300.0))
            sim.start(collector, name, role="gc", options=quick(min_age_s=min_age_s, interval_s=120.0))
        sim.run(hours=1)
        sim.heal()
        sim.run(minutes=30)
        if not rules.manifests.latest_id:
            return
        pinned = {checkpoint.manifest_id for checkpoint in rules.manifests.latest.checkpoints}
        left = [key for key in sim.objects(MANIFESTS) if int(key[-29:-9]) not in pinned]
        assert len(left) < 30, "old manifests pile up"


@pytest.mark.fault("F1.13")
@simulated
def test_two_collectors_end_at_the_greatest_boundary(seed: int) -> None:
    """In every order, and with a lost response to an update: the greatest boundary wins and never decreases."""
    chance = random.Random(f"{seed}/test")
    latency_s = chance.choice((0.0, 0.5, 5.0))
    sim, rules = watched(seed, SimOptions(latency_s=latency_s, attributes=chance.random() < 0.5))
    with sim:
        sim.watch(rules)
        start_work(sim, Work(rounds=8, pause_s=10.0, work_s=5.0))
        collectors = []
        for name in ("gc-a", "gc-b"):
            gc = sim.start(collector, name, role="gc", options=quick(min_age_s=5.0, interval_s=chance.uniform(8, 12)))
            gc.fail("put", "boundary", chance.choice((Fault.AFTER, Fault.LATE)), skip=chance.randrange(3))
            collectors.append(gc)
        sim.run(minutes=15 if sim.two_phase else 5)  # a two-phase create takes five requests, of up to 10 s each
        assert all(gc.error is None for gc in collectors)
        marks = [mutation for mutation in sim.history.mutations if mutation.key.endswith("manifest.boundary")]
        assert len(marks) > 1
        assert rules.manifests.boundary == int(marks[-1].data or b"0")
        assert rules.manifests.boundary < rules.manifests.latest_id


@pytest.mark.fault("F1.14")
@simulated
def test_a_collector_killed_between_advance_and_delete_is_finished_by_the_next_pass(seed: int) -> None:
    """The next pass deletes the files; until then no process is affected."""
    sim, rules = watched(seed, SimOptions(latency_s=0.02))
    with sim:
        sim.watch(rules)
        start_work(sim, Work(rounds=10, pause_s=10.0))
        sim.run(minutes=20)
        first = sim.start(collect_once, "first", role="gc", options=quick(min_age_s=60.0))
        first.kill_before("delete", MANIFESTS)
        sim.run(minutes=1)
        assert first.is_killed
        assert rules.manifests.boundary > 0
        assert manifest_key(ROOT, 1) in sim.objects()
        sim.start(checked_reader, role="reader", latest_id=rules.manifests.latest_id)
        second = sim.start(collect_once, "second", role="gc", options=quick(min_age_s=60.0))
        sim.run(minutes=1)
        assert second.error is None
        assert manifest_key(ROOT, 1) not in sim.objects()


async def checked_reader(process: SimProcess, *, latest_id: int) -> None:
    assert (await manifests_of(process).read_latest()).id >= latest_id


@pytest.mark.fault("F5.10")
@simulated
def test_a_dry_run_writes_nothing(seed: int) -> None:
    """It does not write the boundary, and expired checkpoints stay."""
    sim, rules = watched(seed, SimOptions(latency_s=0.02))
    with sim:
        sim.watch(rules)
        start_work(sim, Work(rounds=12, pause_s=10.0))
        sim.run(hours=1)
        sim.processes[1].kill()
        before = sim.objects()
        assert len(rules.manifests.latest.checkpoints) > 0
        dry = sim.start(collect_once, "dry", role="gc", options=quick(dry_run=True))
        sim.run(minutes=5)
        assert dry.error is None
        assert sim.objects() == before
        wet = sim.start(collect_once, "wet", role="gc", options=quick())
        sim.run(minutes=5)
        assert wet.error is None
        assert len(sim.objects()) < len(before), "there was something to say"


def info() -> SstInfo:
    return SstInfo(first_entry=b"a", last_entry=b"z", index_offset=10, index_len=10)


def view(ms: int, chance: int = 0) -> SstView:
    return SstView.identity(Sst(id=Ulid.from_parts(START_MS + ms, chance), info=info()))


async def plant(
    process: SimProcess,
    *,
    manifests: list[Manifest],
    compactions: Compactions | None = None,
    wal: dict[int, bytes] | None = None,
    ssts: list[Ulid] | None = None,
) -> None:
    """Write the database that a test describes."""
    store = manifests_of(process)
    stored = await store.create_new(manifests[0])
    for manifest in manifests[1:]:
        await stored.apply(lambda _, manifest=manifest: manifest)
    if compactions is not None:
        jobs = await compactions_of(process).load_or_create()
        await jobs.apply(lambda _: compactions)
    for wal_id, data in (wal or {}).items():
        await process.store.put(wal_key(ROOT, wal_id), data, mode=CREATE)
    for sst_id in ssts or []:
        await process.store.put(sst_key(ROOT, sst_id), b"sst", mode=OVERWRITE)


def collected(at_s: float, min_age_s: float, **database: Any) -> set[str]:
    """Return the remaining objects after one pass, ``at_s`` after the database was written."""
    with Simulation(1, options=SimOptions(latency_s=0.0)) as sim:
        planter = sim.start(plant, role="writer", **database)
        sim.run(seconds=1)
        assert planter.error is None
        gc = sim.start(collect_once, role="gc", options=quick(min_age_s=min_age_s), at_s=at_s)
        sim.run(hours=10)
        assert gc.error is None, gc.error
        return set(sim.objects())


@pytest.mark.fault("F5.6")
@pytest.mark.parametrize(("at_s", "kept"), [(100.0, range(1, 10)), (100.1, (4, 5, 6, 7, 8, 9))])
def test_wal_files_are_deleted_only_below_replay_after_and_past_min_age(at_s: float, kept: list[int]) -> None:
    """The file at replay_after (7) and later ones stay, also those that a checkpoint replays (4, 5) and a fence."""
    early = Manifest(replay_after_wal_id=WalId(3), next_wal_sst_id=WalId(6))
    pin = Checkpoint(id=UUID(int=5), manifest_id=ManifestId(1), expire_s=0, create_s=1)
    late = Manifest(replay_after_wal_id=WalId(7), next_wal_sst_id=WalId(10), checkpoints=(pin,))
    wal = {wal_id: b"" if wal_id == 6 else b"rows" for wal_id in range(1, 10)}
    left = collected(at_s, 100.0, manifests=[early, late], wal=wal)
    assert {key for key in left if "/wal/" in key} == {wal_key(ROOT, wal_id) for wal_id in kept}


def job(ms: int, status: Any) -> Compaction:
    claim = WorkerClaim(worker_id="w", last_heartbeat_ms=1) if status is RUNNING else None
    spec = TieredSpec(destination=RunId(0))
    return Compaction(id=Ulid.from_parts(START_MS + ms, 3), spec=spec, status=status, worker=claim)


@pytest.mark.fault("F5.7", "F5.8")
@pytest.mark.parametrize(
    ("jobs", "l0_ms", "min_age_ms", "cutoff_ms"),
    [
        pytest.param([(500, COMPLETED)], 900, 100, 500, id="the compaction binds"),
        pytest.param([(800, RUNNING), (700, RUNNING)], 500, 100, 500, id="the newest L0 binds"),
        pytest.param([(800, COMPLETED)], 900, 2_500, 500, id="min_age binds"),
        pytest.param([(600, COMPLETED), (800, RUNNING)], 900, 100, 600, id="the oldest job binds"),
        pytest.param(None, 900, 100, None, id="no compactions file"),
        pytest.param([], 900, 100, None, id="an empty compactions file"),
    ],
)
def test_ssts_at_the_cutoff_are_kept(
    jobs: list[tuple[int, Any]] | None, l0_ms: int, min_age_ms: int, cutoff_ms: int | None
) -> None:
    """The collector starts at 3000 ms; an SST made exactly at the cutoff stays, one made a millisecond earlier goes."""
    around = [] if cutoff_ms is None else [(cutoff_ms - 1, 9), (cutoff_ms, 0), (cutoff_ms, 2**79), (cutoff_ms + 1, 0)]
    loose = [Ulid.from_parts(START_MS + ms, chance) for ms, chance in [(1, 1), *around]]
    used = view(2, 5)
    tree = Tree(l0=(view(l0_ms, 7),), compacted=(SortedRun(id=RunId(0), ssts=(used,)),))
    entries = tuple(sorted((job(*each) for each in jobs or ()), key=lambda entry: entry.id))
    left = collected(
        3.0,
        min_age_ms / 1000,
        manifests=[Manifest(tree=tree)],
        compactions=None if jobs is None else Compactions(entries=entries),
        ssts=[*loose, used.id, tree.l0[0].id],
    )
    expected = {used.id, tree.l0[0].id, *(loose if cutoff_ms is None else loose[2:])}
    assert {key for key in left if "/compacted/" in key} == {sst_key(ROOT, sst_id) for sst_id in expected}


def test_the_newest_versions_stay_whatever_their_age() -> None:
    entries = (job(1, COMPLETED),)
    left = collected(10_000.0, 1.0, manifests=[Manifest(), Manifest()], compactions=Compactions(entries=entries))
    assert left == {
        manifest_key(ROOT, 2),
        compactions_key(ROOT, 2),
        boundary_key(ROOT, "manifest"),
        boundary_key(ROOT, "compactions"),
    }


@pytest.mark.fault("F5.5")
def test_a_missing_checkpoint_manifest_stops_deletions() -> None:
    """The references of the manifest are unknown, so no SST and no WAL file goes; the next pass tries again."""
    pin = Checkpoint(id=UUID(int=5), manifest_id=ManifestId(99), expire_s=0, create_s=1)
    manifest = Manifest(
        replay_after_wal_id=WalId(7),
        next_wal_sst_id=WalId(10),
        checkpoints=(pin,),
        tree=Tree(l0=(view(900),)),
    )
    with Simulation(1, options=SimOptions(latency_s=0.0)) as sim:
        garbage = Ulid.from_parts(START_MS + 1, 1)
        jobs = Compactions(entries=(job(800, COMPLETED),))
        sim.start(plant, role="writer", manifests=[manifest], compactions=jobs, wal={1: b"rows"}, ssts=[garbage])
        sim.run(seconds=1)
        before = {key for key in sim.objects() if "/wal/" in key or "/compacted/" in key}
        gc = sim.start(collector, role="gc", options=quick())
        sim.run(minutes=10)
        assert gc.is_running
        assert {key for key in sim.objects() if "/wal/" in key or "/compacted/" in key} == before


@pytest.mark.fault("F5.15")
def test_a_failed_deletion_does_not_delay_the_others() -> None:
    """The next pass tries it again."""
    stubborn = wal_key(ROOT, 3)

    class Stubborn:
        def __init__(self, store: ObjectStore) -> None:
            self.store = store
            self.refusals = 2

        async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
            if stubborn not in keys or not self.refusals:
                return await self.store.delete_many(keys)
            self.refusals -= 1
            others = await self.store.delete_many([key for key in keys if key != stubborn])
            return {**others, stubborn: UnavailableError("not now")}

        def __getattr__(self, name: str) -> Any:
            return getattr(self.store, name)

    async def with_stubborn_store(process: SimProcess) -> None:
        process.store = Stubborn(process.store)  # type: ignore[assignment]
        await collector(process, options=quick(interval_s=60.0))

    with Simulation(1, options=SimOptions(latency_s=0.0)) as sim:
        manifest = Manifest(replay_after_wal_id=WalId(7), next_wal_sst_id=WalId(10))
        sim.start(plant, role="writer", manifests=[manifest], wal=dict.fromkeys(range(1, 8), b"rows"))
        sim.run(seconds=1)
        sim.start(with_stubborn_store, "gc", role="gc")
        left = []
        for _ in range(3):
            sim.run(seconds=60)
            left.append({key for key in sim.objects() if "/wal/" in key})
        kept = wal_key(ROOT, 7)
        assert left == [{stubborn, kept}, {stubborn, kept}, {kept}]


Broken = Callable[[pytest.MonkeyPatch], None]


def without_boundary(patch: pytest.MonkeyPatch) -> None:
    async def no_advance(self: object, target: int) -> None:
        del self, target

    patch.setattr(VersionedStore, "advance_boundary", no_advance)


def manifest_before_compactions(patch: pytest.MonkeyPatch) -> None:
    """Read the manifest before the compactions, which is the wrong order."""
    sweep = sweeps.sweep_compacted

    async def wrong(database: Any, this: Any) -> None:
        early = await database.manifests.read_latest()

        class Early:
            async def read_latest(self) -> Any:
                return early

            def __getattr__(self, name: str) -> Any:
                return getattr(database.manifests, name)

        await sweep(replace(database, manifests=Early()), this)

    patch.setattr("shale.gc.collector.SWEEPS", {**_sweeps(), "compacted": wrong})


def without_the_term(term: str) -> Broken:
    def breaks(patch: pytest.MonkeyPatch) -> None:
        whole = sweeps.cutoff_for_ssts

        def cut(*args: Any, **kwargs: Any) -> Cutoff:
            return replace(whole(*args, **kwargs), **{term: 2**62})

        patch.setattr(sweeps, "cutoff_for_ssts", cut)

    return breaks


def _sweeps() -> dict[Any, Any]:
    from shale.gc.collector import SWEEPS

    return dict(SWEEPS)


SLOW_FLUSHES = Work(rounds=20, publish_s=60.0, work_s=10.0)
SLOW_JOBS = Work(rounds=100, pause_s=12.0, publish_s=1.0, work_s=40.0)


@pytest.mark.parametrize(
    ("breaks", "work"),
    [
        pytest.param(
            without_boundary,
            SLOW_FLUSHES,
            id="deleting without the boundary",
            marks=pytest.mark.native_only("a deletion raises the low-water mark itself"),
        ),
        pytest.param(without_the_term("compactions_ms"), SLOW_JOBS, id="forgetting running compactions"),
        pytest.param(without_the_term("newest_l0_ms"), SLOW_FLUSHES, id="forgetting unpublished L0s"),
        pytest.param(manifest_before_compactions, SLOW_JOBS, id="reading in the wrong order"),
    ],
)
def test_a_broken_collector_is_found(breaks: Broken, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule that is removed leads to a failure within a few seeds."""

    def beside_a_frozen_collector(seed: int) -> None:
        chance = random.Random(f"{seed}/broken")
        sim, rules = watched(seed, SimOptions(latency_s=0.02))
        with sim:
            sim.watch(rules)
            start_work(sim, work)
            gc = sim.start(collector, role="gc", options=quick(interval_s=20.0))
            gc.freeze_before("*", COMPACTIONS, chance.uniform(300, 500), skip=chance.randrange(40))
            sim.run(minutes=20)

    breaks(monkeypatch)
    seed_that_fails(beside_a_frozen_collector, 200)


def test_one_seed_gives_one_history() -> None:
    def fingerprint() -> str:
        sim, rules = watched(seeds()[0], swarm=True)
        with sim:
            sim.watch(rules)
            start_work(sim, Work(rounds=8))
            sim.start(collector, role="gc", options=quick())
            sim.run(hours=1)
            return sim.history.fingerprint

    assert fingerprint() == fingerprint()
