"""Coordinators that die, stall and compete.

Source: docs/reference/protocol.md 16.4.
"""

import random

import anyio
import pytest

from shale.errors import FencedError
from shale.format.manifest import decode_manifest
from shale.testing.faults import Fault
from shale.testing.mutation_log import Mutation
from shale.testing.sim_network import HookPoint
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale.types import CompactionStatus
from tests.simulation.compactor.foreign import (
    damaged_epoch,
    reckless_commit,
    start_overlapping_jobs,
)
from tests.simulation.compactor.lsm import (
    CALM,
    PASSIVE,
    claim_as_writer,
    compactor,
    coordinator,
    flush,
    metadata_collector,
    worker,
    writer,
)
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.request_counts import at_most
from tests.simulation.world import World

S = CompactionStatus
REQUESTS_OF_A_CYCLE = 75
"""A compactor that merges four L0s has settled after fewer requests than this."""


@pytest.mark.fault("F4.1")
@row(
    "died with a Scheduled job",
    "died with a Running job",
    "died with a Compacted job",
    "died before it owned both epochs",
    within=100,
)
def test_a_coordinator_killed_after_any_request_loses_and_doubles_no_row(seed: int, reached: CoverageMarks) -> None:
    """A restart reaches the same rows, each of them once, wherever a full cycle is interrupted."""
    with Simulation(seed) as sim:
        world = World(sim).filled(4)
        victim = sim.start(compactor, "victim", role="compactor")
        moment = HookPoint.AFTER if seed % 2 else HookPoint.BEFORE
        # 37 divides neither bound: a few seeds are spread over the cycle, and as many as the bound cover it.
        skip = seed // 2 * 37 % at_most(sim, REQUESTS_OF_A_CYCLE, two_phase=140)
        victim.network.hook(moment, "*", "", victim.kill, skip=skip)
        sim.start(writer, "second", role="writer", flushes=2)
        sim.run(hours=1, until=lambda: victim.is_killed)
        assert victim.is_killed
        for status in (S.SCHEDULED, S.RUNNING, S.COMPACTED):
            reached(f"died with a {status.name.capitalize()} job", when=world.any_in(status))
        reached("died before it owned both epochs", when=not world.compactions.compactor_epoch)
        sim.run(hours=1, until=world.is_settled)
        world.conclude()
        assert [run.id for run in world.manifest.tree.compacted] == [0]


@pytest.mark.fault("F4.7")
@row("fenced at the manifest", "fenced at the compactions")
def test_of_two_coordinators_the_last_claimant_continues(seed: int, reached: CoverageMarks) -> None:
    """The last claimant continues; every older one is fenced at its next write and writes nothing more."""
    chance = random.Random(seed)
    with Simulation(seed, options=SimOptions(latency_s=chance.choice((0.01, 0.3)))) as sim:
        world = World(sim).filled(4)
        sim.start(writer, "second", role="writer", flushes=10, pause_s=30.0)
        for number in range(5):
            sim.at(number * chance.uniform(1, 40), lambda n=number: sim.start(compactor, f"c{n}", role="compactor"))
        sim.run(minutes=6)
        coordinators = [process for process in sim.processes if process.name.startswith("c")]
        alive = [process for process in coordinators if process.is_running]
        assert len(alive) == 1
        assert all(isinstance(process.error, FencedError) for process in coordinators if process not in alive)
        assert_no_write_after_a_newer_epoch(world)
        for part in ("manifest", "compactions"):
            lost = [refusal for refusal in sim.history.refusals if f"/{part}/" in refusal.key]
            fenced = [each for each in lost if each.process not in {alive[0].name, "second"}]
            reached(f"fenced at the {part}", when=bool(fenced))
        world.conclude()


def assert_no_write_after_a_newer_epoch(world: World) -> None:
    """Appendix B 5: epochs in the chain of versions never decrease, in either kind of file."""
    for versions in (world.rules.manifests.versions, world.rules.compactions.versions):
        epochs = [versions[file_id].compactor_epoch for file_id in sorted(versions)]
        assert epochs == sorted(epochs)


@pytest.mark.fault("F4.8")
@row("the put met a newer version", "the put landed behind the boundary")
def test_a_stalled_coordinator_cannot_commit_its_prepared_manifest(seed: int, reached: CoverageMarks) -> None:
    """The coordinator stalls between preparing a commit and its put; meanwhile another claims the epoch and GC runs.

    The put meets an existing id, or creates a deleted one and finds the boundary above it.  Either way: fenced.
    """
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(4)
        zombie = sim.start(compactor, "zombie", role="compactor")
        sleep_s = chance.choice((150, 1800)) + chance.uniform(0, 60)
        zombie.freeze_before("put", "/manifest/", sleep_s, skip=1 + chance.randrange(2))
        sim.start(metadata_collector, "gc", role="gc")
        sim.at(60, lambda: sim.start(compactor, "heir", role="compactor", options=CALM))
        sim.at(60, lambda: sim.start(writer, "second", role="writer", flushes=8, pause_s=100.0))
        sim.run(hours=3, until=lambda: zombie.has_ended)
        assert isinstance(zombie.error, FencedError)
        took_over_s = next(each.time_s for each in world.live_manifests() if each.process == "heir")
        assert not any(each.process == "zombie" and each.time_s > took_over_s for each in world.live_manifests())
        reached("the put met a newer version", when=bool(sim.history.refused("zombie", "/manifest/")))
        reached("the put landed behind the boundary", when=bool(world.rules.manifests.zombies))
        world.conclude()


@pytest.mark.fault("F4.9")
@row("died after the manifest", "died before the compactions", "the answer was lost, too")
def test_a_kill_between_the_two_writes_of_a_commit_applies_the_job_once(seed: int, reached: CoverageMarks) -> None:
    """The manifest has the run, the compactions do not: the successor completes the job and applies nothing twice."""
    chance = random.Random(seed)
    with Simulation(seed, options=SimOptions(latency_s=0.01 + seed % 3 * 0.2)) as sim:
        world = World(sim).filled(4)
        victim = sim.start(coordinator, "victim", role="compactor")
        helper = sim.start(worker, "helper", role="worker")
        world.run_until(lambda: world.any_in(S.COMPACTED), why="no result")
        if chance.random() < 0.5:
            # The first is the checkpoint that pins the inputs, the second the new run.
            victim.kill_after("put", "/manifest/", skip=1)
            reached("died after the manifest")
        else:
            victim.kill_before("put", "/compactions/")
            reached("died before the compactions")
            if chance.random() < 0.5:
                victim.fail("put", "/manifest/", Fault.AFTER, skip=1)
                reached("the answer was lost, too")
        world.run_until(lambda: victim.is_killed, why="the coordinator lives")
        sim.run(seconds=10)  # what is in flight lands
        (waiting,) = world.compactions.entries
        assert waiting.status is S.COMPACTED
        assert len(world.manifest.tree.compacted) == 1, "the manifest is written first"
        (run,) = world.manifest.tree.compacted
        sim.start(coordinator, "heir", role="compactor")
        world.run_until(lambda: world.has(waiting.id, S.COMPLETED, S.FAILED))
        assert world.outcome(waiting.id) is S.COMPLETED
        assert world.manifest.tree.compacted == (run,)
        assert len([each for each in world.live_manifests() if _runs(each)]) == 2, "the commit, and the heir's claim"
        assert helper.error is None
        world.conclude()


def _runs(mutation: Mutation) -> bool:
    assert mutation.data is not None
    return bool(decode_manifest(mutation.data).tree.compacted)


@pytest.mark.fault("F4.9b")
@row("the first was left Compacted", "the first was completed", "the second was Running", "the second was Compacted")
def test_a_half_committed_job_beside_a_rewrite_of_its_run_is_applied_once(seed: int, reached: CoverageMarks) -> None:
    """A foreign coordinator ran ``[3, 2] -> 2`` and ``[2] -> 2`` together, committed the first and died.

    Run 2 exists as before, so the second looks sound; its result would replace what the first has written.  Whether
    or not the first one is still in the file, the second fails at start-up (docs/reference/protocol.md 6.4, step 5).
    """
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(4).layered(4)
        first, second, fast, slow = start_overlapping_jobs(world, frozen_s=15.0)
        slow.freeze(chance.choice((0.0, 60.0)))
        world.run_until(lambda: world.has(first, S.COMPACTED))
        is_completed = chance.random() < 0.5
        sim.start(reckless_commit, role="compactor", job=first, completed=is_completed)
        sim.run(seconds=20)
        if not is_completed:
            reached("the first was left Compacted", when=world.has(first, S.COMPACTED))
        reached("the first was completed", when=is_completed)
        reached("the second was Running", when=world.has(second, S.RUNNING))
        reached("the second was Compacted", when=world.has(second, S.COMPACTED))
        runs = world.manifest.tree.compacted
        sim.start(coordinator, "heir", role="compactor", options=PASSIVE)
        world.run_until(lambda: S.FAILED in world.path_of(second) or S.COMPLETED in world.path_of(second))
        assert world.outcome(second) is S.FAILED
        assert not world.has(first, S.COMPACTED), "it is finished, whether or not the file still lists it"
        sim.run(minutes=3)
        assert world.manifest.tree.compacted == runs, "nothing is applied twice, nothing is lost"
        assert fast.error is None
        assert slow.error is None
        world.conclude(PASSIVE)


async def obstinate_writer(process: SimProcess, *, times: int, spared: int) -> None:
    """Flush before every manifest write of the coordinator except the first ones."""
    owner = await claim_as_writer(process)
    victim = next(other for other in process.sim.processes if other.role == "compactor")
    due = anyio.Event()

    def ring() -> None:
        nonlocal due
        victim.freeze(5.0)
        due.set()

    for number in range(times):
        victim.network.hook(HookPoint.BEFORE, "put", "/manifest/", ring, skip=0 if number else spared)
        await due.wait()
        due = anyio.Event()
        await owner.refresh()
        await flush(process, owner)


@pytest.mark.fault("F4.10")
@row("the checkpoint met twenty conflicts", "the commit met twenty conflicts")
def test_a_commit_survives_twenty_conflicting_flushes_with_one_checkpoint(seed: int, reached: CoverageMarks) -> None:
    """No L0 is lost, and the attempts share one checkpoint."""
    with Simulation(seed) as sim:
        world = World(sim).filled(4)
        boss = sim.start(compactor, "boss", role="compactor")
        sim.run(minutes=5, until=lambda: world.any_in(S.COMPACTED))
        boss.freeze(10.0)  # until the writer is ready for it
        spared = seed % 2  # the first manifest of a commit is its checkpoint
        sim.start(obstinate_writer, "second", role="writer", times=20, spared=spared)
        sim.run(minutes=10, until=lambda: bool(world.manifest.tree.compacted))
        assert boss.error is None
        assert world.manifest.tree.compacted
        assert len(world.manifest.tree.l0) == 20
        has_met = len(sim.history.refused("boss", "/manifest/")) == 20
        reached("the commit met twenty conflicts" if spared else "the checkpoint met twenty conflicts", when=has_met)
        unnamed = [checkpoint for checkpoint in world.manifest.checkpoints if not checkpoint.name]
        assert len(unnamed) == 1
        world.conclude()


@pytest.mark.fault("F4.24")
@row("with jobs under way", "with an empty file")
def test_compactions_ahead_of_the_manifest_fence_the_coordinator(seed: int, reached: CoverageMarks) -> None:
    """A start that claims an epoch below that of the compactions is fenced and changes no job."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(4)
        if chance.random() < 0.5:
            first = sim.start(compactor, "first", role="compactor")
            first.kill_after("*", "", skip=20 + chance.randrange(20))
            sim.run(minutes=2)
        reached("with jobs under way", when=any(entry.is_active for entry in world.compactions.entries))
        reached("with an empty file", when=not world.compactions.entries)
        ahead = 2 + chance.randrange(1000)
        sim.start(damaged_epoch, role="compactor", epoch=world.manifest.compactor_epoch + ahead)
        sim.run(minutes=1)
        trees, jobs = [*world.manifest.trees()], world.compactions
        late = sim.start(compactor, "late", role="compactor")
        sim.run(minutes=5)
        assert isinstance(late.error, FencedError), late.error
        assert world.compactions == jobs, "nothing was written over the damage"
        assert [*world.manifest.trees()] == trees
