"""The compactor under faults: rows F4.1, F4.5, F4.7 to F4.10 and F4.18 of docs/protocol.md 16.4."""

import random
from typing import TYPE_CHECKING

import anyio

from shale.compaction.entries import with_entry
from shale.errors import FencedError
from shale.format.manifest import decode_manifest
from shale.protocol.manifest_store import WRITER
from shale.protocol.transactional import Fenceable
from shale.testing.sim_store import Fault, Moment
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale.types import Compaction, CompactionStatus, RunId, TieredSpec
from tests.simulation.conftest import simulated
from tests.simulation.lsm import (
    CALM,
    World,
    compactions_of,
    compactor,
    coordinator,
    flush,
    manifests_of,
    metadata_collector,
    worker,
    writer,
)

if TYPE_CHECKING:
    from shale.protocol.compactions_store import CompactionsStore

S = CompactionStatus


@simulated
def test_f4_1_the_coordinator_dies_after_any_request(seed: int) -> None:
    """Wherever a full cycle is cut, a restart reaches the same rows, each of them once."""
    with Simulation(seed) as sim:
        world = World(sim).filled(4)
        victim = sim.start(compactor, "victim", role="compactor")
        moment = Moment.AFTER if seed % 2 else Moment.BEFORE
        victim.network.hook(moment, "*", "", victim.kill, skip=(seed // 2) % 75)
        sim.start(writer, "second", role="writer", flushes=2)
        sim.run(hours=1, until=world.is_settled)
        world.settle()
        assert [run.id for run in world.manifest.tree.compacted] == [0]


@simulated
def test_f4_2_a_worker_dies_after_any_request(seed: int) -> None:
    """Its job is reclaimed after the timeout and resumed; what it left behind is garbage and nothing else."""
    chance = random.Random(seed)
    with Simulation(seed, options=SimOptions(latency_s=chance.choice((0.02, 0.5, 1.5)))) as sim:
        world = World(sim).filled(6, keys=80, deletes=0.1, rows_max=40)
        sim.start(coordinator, "boss", role="compactor")
        victim = sim.start(worker, "victim", role="worker")
        op, key_part, count = chance.choice((("*", "", 60), ("put", "/compacted/", 8), ("put", "/compactions/", 8)))
        victim.network.hook(
            chance.choice((Moment.BEFORE, Moment.AFTER)), op, key_part, victim.kill, skip=chance.randrange(count)
        )
        sim.start(worker, "heir", role="worker")
        sim.run(hours=1, until=world.is_settled)
        assert world.is_settled()
        world.settle()


@simulated
def test_f4_3_a_frozen_worker_wakes_after_its_job_was_redone(seed: int) -> None:
    """It stops at its next heartbeat or at its finish, and nothing that it writes is accepted."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(4, keys=30)
        sim.start(coordinator, "boss", role="compactor")
        sleeper = sim.start(worker, "sleeper", role="worker")
        sleeper.network.hook(Moment.BEFORE, "*", "", lambda: sleeper.freeze(300), skip=5 + chance.randrange(25))
        sim.start(worker, "other", role="worker")
        sim.run(minutes=15)
        assert world.is_settled()
        world.settle()
        assert sleeper.error is None


@simulated
def test_f4_5_a_claim_meets_the_coordinators_write(seed: int) -> None:
    """In either order, and with lost answers on both sides, each job has one owner at a time."""
    chance = random.Random(seed)
    options = SimOptions(latency_s=chance.choice((0.01, 0.5, 2.0)), attributes=chance.random() < 0.5)
    with Simulation(seed, options=options) as sim:
        world = World(sim).filled(7)
        boss = sim.start(coordinator, "boss", role="compactor")
        workers = [sim.start(worker, name, role="worker") for name in ("w1", "w2")]
        for process in (boss, *workers):
            process.fail("put", "/compactions/", chance.choice((Fault.AFTER, Fault.LATE)), skip=chance.randrange(8))
        sim.start(writer, "second", role="writer", flushes=6, pause_s=10.0)
        sim.run(hours=1, until=world.is_settled)
        assert world.is_settled()
        assert boss.error is None
        # A job changes hands only by a reclaim, and nobody here is silent for that long.
        assert all(len(owners) == 1 for owners in world.owners().values()), world.owners()
        world.settle()


@simulated
def test_f4_7_two_coordinators_take_turns(seed: int) -> None:
    """Whoever claimed last goes on; every older one is fenced at its next write and writes nothing more."""
    chance = random.Random(seed)
    with Simulation(seed, options=SimOptions(latency_s=chance.choice((0.01, 0.3)))) as sim:
        world = World(sim).filled(4)
        sim.start(writer, "second", role="writer", flushes=10, pause_s=30.0)
        for number in range(5):
            sim.at(number * chance.uniform(1, 40), lambda n=number: sim.start(compactor, f"c{n}", role="compactor"))
        sim.run(minutes=30)
        coordinators = [process for process in sim.processes if process.name.startswith("c")]
        alive = [process for process in coordinators if process.is_running]
        assert len(alive) == 1
        assert all(isinstance(process.error, FencedError) for process in coordinators if process not in alive)
        assert_no_write_after_a_newer_epoch(world)
        world.settle()


def assert_no_write_after_a_newer_epoch(world: World) -> None:
    """Appendix B 5: epochs in the chain of versions never decrease, in either kind of file."""
    for versions in (world.rules.manifests.versions, world.rules.compactions.versions):
        epochs = [versions[file_id].compactor_epoch for file_id in sorted(versions)]
        assert epochs == sorted(epochs)


@simulated
def test_f4_8_a_zombie_wakes_with_a_prepared_manifest(seed: int) -> None:
    """It froze between preparing a commit and its put; meanwhile another took over and the collector was at work.

    The put meets an existing id, or creates a deleted one and finds the boundary above it.  Either way: fenced.
    """
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(4)
        zombie = sim.start(compactor, "zombie", role="compactor")
        zombie.freeze_before("put", "/manifest/", chance.uniform(600, 2400), skip=1 + chance.randrange(2))
        sim.start(metadata_collector, "gc", role="gc")
        sim.at(60, lambda: sim.start(compactor, "heir", role="compactor", options=CALM))
        sim.at(60, lambda: sim.start(writer, "second", role="writer", flushes=8, pause_s=100.0))
        sim.run(hours=3, until=lambda: zombie.has_ended)
        assert isinstance(zombie.error, FencedError)
        assert not any(mutation.process == "zombie" and mutation.time_s > 600 for mutation in live_versions(world))
        world.settle()


def live_versions(world: World):
    """The mutations that became versions of the manifest, without what landed behind the boundary."""
    namespace = world.rules.manifests
    for mutation in world.sim.history.of("/manifest/"):
        file_id = namespace.namespace.parse(mutation.key)
        if mutation.op != "delete" and file_id not in namespace.zombies:
            yield mutation


@simulated
def test_f4_9_death_between_the_two_writes_of_a_commit(seed: int) -> None:
    """The manifest has the run, the compactions do not know: the heir completes the job and applies nothing twice."""
    with Simulation(seed, options=SimOptions(latency_s=0.01 + seed % 3 * 0.2)) as sim:
        world = World(sim).filled(4)
        victim = sim.start(compactor, "victim", role="compactor")
        # 1: the epoch; 2: the checkpoint that pins the inputs; 3: the new run.
        victim.kill_after("put", "/manifest/", skip=2)
        sim.run(hours=1)
        assert victim.is_killed
        (waiting,) = world.compactions.entries
        assert waiting.status is S.COMPACTED
        (run,) = world.manifest.tree.compacted
        sim.start(compactor, "heir", role="compactor")
        sim.run(minutes=5, until=world.is_settled)
        (done,) = world.compactions.entries
        assert (done.id, done.status) == (waiting.id, S.COMPLETED)
        assert world.manifest.tree.compacted == (run,)
        assert len([m for m in live_versions(world) if _runs(m)]) == 2, "the commit, and the claim of the heir"
        world.settle()


def _runs(mutation) -> bool:
    return bool(decode_manifest(mutation.data).tree.compacted)


async def obstinate_writer(process: SimProcess, *, times: int) -> None:
    """Flush just before every manifest that the coordinator is about to write."""
    owner = await Fenceable.claim(await manifests_of(process).load(), WRITER)
    victim = next(other for other in process.sim.processes if other.role == "compactor")
    due = anyio.Event()

    def ring() -> None:
        nonlocal due
        victim.freeze(5.0)
        due.set()

    for _ in range(times):
        victim.network.hook(Moment.BEFORE, "put", "/manifest/", ring, skip=0)
        await due.wait()
        due = anyio.Event()
        await owner.refresh()
        await flush(process, owner)


@simulated
def test_f4_10_a_commit_conflicts_with_twenty_flushes(seed: int) -> None:
    """No L0 is lost, and the attempts share one checkpoint."""
    with Simulation(seed) as sim:
        world = World(sim).filled(4)
        boss = sim.start(compactor, "boss", role="compactor")
        sim.run(minutes=5, until=lambda: any(e.status is S.COMPACTED for e in world.compactions.entries))
        boss.freeze(10.0)  # until the writer is ready for it
        sim.start(obstinate_writer, "second", role="writer", times=20)
        sim.run(minutes=10, until=lambda: bool(world.manifest.tree.compacted))
        assert boss.error is None
        assert world.manifest.tree.compacted
        assert len(world.manifest.tree.l0) == 20
        unnamed = [checkpoint for checkpoint in world.manifest.checkpoints if not checkpoint.name]
        assert len(unnamed) == 1
        world.settle()


async def full_compaction(process: SimProcess) -> None:
    """What an admin submits: all runs into the oldest."""
    manifest = (await manifests_of(process).read_latest()).value
    runs = tuple(run.id for run in manifest.tree.compacted)
    spec = TieredSpec(sorted_runs=runs, destination=RunId(min(runs)))
    entry = Compaction(id=process.env.ids.ulid(), spec=spec)
    store: CompactionsStore = compactions_of(process)
    await (await store.load()).apply(lambda current: with_entry(current.value, entry))


async def careless_admin(process: SimProcess, *, times: int) -> None:
    """Submit whatever comes to mind: right and wrong sources, orders and destinations, and the same again."""
    stored = await compactions_of(process).load()
    for _ in range(times):
        await anyio.sleep(process.rng.uniform(0, 8))
        tree = (await manifests_of(process).read_latest()).value.tree
        l0 = [view.id for view in tree.l0]
        runs = [run.id for run in tree.compacted]
        spec = TieredSpec(
            l0_view_ids=tuple(_stretch(process.rng, l0)),
            sorted_runs=tuple(_stretch(process.rng, runs)),
            destination=RunId(process.rng.choice([*runs, *runs, max(runs, default=-1) + 1])),
        )
        for entry in [Compaction(id=process.env.ids.ulid(), spec=spec) for _ in range(process.rng.randint(1, 2))]:
            await stored.refresh()
            await stored.apply(lambda current, entry=entry: with_entry(current.value, entry))


def _stretch(rng: random.Random, things: list) -> list:
    """Mostly neighbours to the end of the list, sometimes fewer, sometimes with a gap."""
    chosen = things[rng.randint(0, len(things)) :]
    if chosen and rng.random() < 0.3:
        chosen = chosen[:-1]
    if len(chosen) > 2 and rng.random() < 0.2:
        del chosen[1]
    return chosen


@simulated
def test_f4_11_and_12_submissions_of_all_kinds(seed: int) -> None:
    """Each ends Failed or runs; runs are rebuilt under their ids, and no stale result replaces a newer run."""
    chance = random.Random(seed)
    with Simulation(seed, options=SimOptions(latency_s=chance.choice((0.02, 0.5)))) as sim:
        world = World(sim).filled(5)
        sim.start(writer, "second", role="writer", flushes=10, pause_s=10.0)
        sim.start(compactor, "boss", role="compactor")
        sim.start(worker, "w", role="worker")
        sim.run(seconds=30, until=lambda: world.compactions.compactor_epoch > 0)
        sim.start(careless_admin, "admin", role="admin", times=25)
        if chance.random() < 0.5:
            sim.at(chance.uniform(5, 90), lambda: sim.start(compactor, "heir", role="compactor"))
        sim.run(minutes=10, until=lambda: world.is_settled() and not admins(sim))
        world.settle()


def admins(sim: Simulation) -> list[SimProcess]:
    return [process for process in sim.running if process.role == "admin"]


@simulated
def test_f4_18_tombstones_go_only_where_nothing_older_exists(seed: int) -> None:
    """Merges above the last run keep them, the merge of everything drops them.  Many deletes, few keys."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim)
        sim.start(writer, role="writer", flushes=4 + chance.randrange(16), keys=5, deletes=0.6, snapshots=False)
        sim.run(seconds=1, until=lambda: world.rules.manifests.latest_id > 0)
        sim.start(compactor, role="compactor")
        sim.run(hours=1, until=world.is_settled)
        world.settle()
        if not world.manifest.tree.compacted:
            return
        sim.start(full_compaction, role="admin")
        sim.run(minutes=1)
        world.settle()
        (run,) = world.manifest.tree.compacted
        rows = [entry for view in run.ssts for entry in world.rows.entries_of(sim, view.sst)]
        assert not any(entry.is_tombstone for entry in rows)


@simulated
def test_compactors_under_a_mixture_of_faults(seed: int) -> None:
    """Coordinators, workers and a writer that fail, freeze and die; healed, everything is done and every row there."""
    with Simulation(seed, swarm=True) as sim:
        world = World(sim)
        sim.restart_killed(60.0)
        sim.start(writer, role="writer", flushes=12, pause_s=60.0)
        sim.run(minutes=10, until=lambda: world.rules.manifests.latest_id > 0)
        sim.start(compactor, "c", role="compactor")
        sim.start(worker, "w", role="worker")
        sim.run(minutes=20)
        world.settle()
