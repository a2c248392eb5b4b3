"""Segments that are drained, written again and pruned.

Source: docs/reference/protocol.md 16.4.
"""

import random

import pytest

from shale.testing.simulation import Simulation
from shale.types import CompactionStatus, DrainSpec, Manifest, TieredSpec, Tree
from tests.simulation.compactor.foreign import pruning_writer, reckless_drain
from tests.simulation.compactor.lsm import OPTIONS, PASSIVE, Load, compactor, coordinator, worker, writer
from tests.simulation.compactor.submissions import all_l0, submitted
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.world import World

S = CompactionStatus
A, B = b"a/", b"b/"


def drain_of(manifest: Manifest, segment: bytes, *, l0_from: int = 0, runs: bool = True) -> DrainSpec:
    """Return a drain of a whole segment, or of the part below its newest L0s."""
    tree = manifest.tree_of(segment) or Tree()
    return DrainSpec(
        segment=segment,
        l0_view_ids=tuple(view.id for view in tree.l0[l0_from:]),
        sorted_runs=tuple(run.id for run in tree.compacted) if runs else (),
    )


def segmented(sim: Simulation, chance: random.Random) -> World:
    """Create two segments beside the root tree; the first one has a run below its L0s."""
    load = Load(keys=5, deletes=0.4)
    loads = [Load(segment=name, keys=5, deletes=0.4) for name in (A, A, B, A)] + [load]
    world = World(sim).filled(0, loads=loads)
    sim.start(compactor, "boss", role="compactor", options=PASSIVE)
    sim.run(seconds=chance.uniform(1, 3))
    (job,) = submitted(sim, [all_l0(world.manifest, segment=A)])
    world.run_until(lambda: world.has(job, S.COMPLETED))
    more = sim.start(writer, "more", role="writer", flushes=2, pause_s=1.0, load=Load(segment=A, keys=5))
    sim.run(seconds=30, until=lambda: more.has_ended)
    return world


@pytest.mark.fault("F4.13")
@row(
    "written before the drain was proposed",
    "written in front of its commit",
    "written after it",
    "left empty",
    "pruned",
)
def test_a_segment_that_was_drained_is_writable_again(seed: int, reached: CoverageMarks) -> None:
    """The drain removes only what it names; rows flushed meanwhile survive, and only the writer prunes the segment."""
    chance = random.Random(seed)
    late = Load(segment=A, keys=5, deletes=0.0)
    with Simulation(seed) as sim:
        world = segmented(sim, chance)
        boss = next(process for process in sim.processes if process.name == "boss")
        when = chance.choice(("before", "in front of", "after", "never"))
        spec = drain_of(world.manifest, A)
        if when == "before":
            sim.start(writer, "late", role="writer", flushes=1, pause_s=0.1, load=late)
            sim.run(seconds=5)
            reached("written before the drain was proposed")
        elif when == "in front of":
            # The first put is the checkpoint, the second the drained tree.
            world.pause_at(boss, "put", "/manifest/", 5.0, skip=chance.randrange(2))
        (job,) = submitted(sim, [spec])
        sim.run(seconds=10)
        if when == "in front of":
            assert boss.is_suspended
            sim.start(writer, "late", role="writer", flushes=1, pause_s=0.1, load=late)
            sim.run(seconds=3)
            reached("written in front of its commit")
        world.run_until(lambda: world.has(job, S.COMPLETED, S.FAILED))
        assert world.path_of(job) == [S.SUBMITTED, S.COMPLETED]
        tree = world.manifest.tree_of(A)
        assert tree is not None, "a coordinator never prunes"
        assert not tree.compacted
        assert len(tree.l0) == (1 if when in ("before", "in front of") else 0)
        assert world.rows.drained == {A}
        reached("left empty", when=tree.is_empty)
        if when == "after":
            sim.start(writer, "late", role="writer", flushes=1, pause_s=0.1, load=late)
            sim.run(seconds=5)
            reached("written after it")
        elif when == "never":
            sim.start(pruning_writer, role="writer", segment=A)
            sim.run(seconds=5)
            assert world.manifest.tree_of(A) is None
            reached("pruned")
        world.conclude(OPTIONS if chance.random() < 0.5 else PASSIVE)


@pytest.mark.fault("F4.13")
@row("it leaves an older L0", "it leaves an older run", "of no segment at all")
def test_a_drain_that_leaves_older_data_fails(seed: int, reached: CoverageMarks) -> None:
    """Otherwise deleted and overwritten rows of the remaining sources would reappear."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = segmented(sim, chance)
        tree = world.manifest.tree_of(A)
        assert tree is not None
        wrong = {
            "it leaves an older L0": DrainSpec(segment=A, l0_view_ids=(tree.l0[0].id,)),
            "it leaves an older run": drain_of(world.manifest, A, runs=False),
            "of no segment at all": DrainSpec(segment=b"z/", l0_view_ids=(tree.l0[0].id,)),
        }
        kinds = chance.sample(sorted(wrong), 2)
        jobs = submitted(sim, [wrong[kind] for kind in kinds])
        world.run_until(lambda: not any(entry.is_active for entry in world.compactions.entries))
        for kind, job in zip(kinds, jobs, strict=True):
            # Of several finished entries the file keeps only the youngest.
            assert S.COMPLETED not in world.path_of(job), kind
            reached(kind)
        assert world.has(jobs[-1], S.FAILED)
        assert world.manifest.tree_of(A) == tree
        world.conclude(PASSIVE)


@pytest.mark.fault("F4.14")
@row("pruned under a Running job", "pruned under a Compacted job", "pruned under a Scheduled job")
def test_a_job_whose_segment_vanished_fails(seed: int, reached: CoverageMarks) -> None:
    """A foreign coordinator drained the segment and the writer pruned it: the job fails, now or at its end."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(0, loads=[Load(segment=name) for name in (A, A, A, B)])
        boss = sim.start(coordinator, "boss", role="compactor", options=PASSIVE)
        sim.run(seconds=2)
        (job,) = submitted(sim, [all_l0(world.manifest, segment=A)])
        world.run_until(lambda: world.has(job, S.SCHEDULED))
        wanted = chance.choice((S.SCHEDULED, S.RUNNING, S.COMPACTED))
        if wanted is not S.SCHEDULED:
            boss.kill()
            hand = sim.start(worker, "hand", role="worker")
            world.run_until(lambda: world.has(job, S.RUNNING))
            if wanted is S.COMPACTED:
                world.run_until(lambda: world.has(job, S.COMPACTED))
            hand.freeze(chance.choice((12.0, 40.0)))
        sim.start(reckless_drain, role="compactor", spec=drain_of(world.manifest, A))
        sim.run(seconds=2)
        sim.start(pruning_writer, role="writer", segment=A)
        sim.run(seconds=2)
        assert world.manifest.tree_of(A) is None
        assert world.has(job, wanted)
        reached(f"pruned under a {wanted.name.capitalize()} job")
        world.fail_in(coordinator, job)
        sim.run(minutes=2)
        assert world.outcome(job) is S.FAILED
        assert world.manifest.tree_of(A) is None
        world.conclude(PASSIVE)


@pytest.mark.fault("F4.13")
@row("two trees at work at once", "one coordinator after another")
def test_segments_are_compacted_in_parallel(seed: int, reached: CoverageMarks) -> None:
    """Each segment has one job at a time, run ids are never shared, and every row of every tree exists."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        names = (b"", A, B)
        loads = [Load(segment=name, snapshots=True) for name in names for _ in range(3)]
        chance.shuffle(loads)
        world = World(sim).filled(0, loads=loads)
        sim.start(compactor, "boss", role="compactor")
        sim.start(worker, "hand", role="worker")
        more = [Load(segment=chance.choice(names), snapshots=True) for _ in range(8)]
        sim.start(writer, "second", role="writer", flushes=0, pause_s=8.0, loads=tuple(more))
        if chance.random() < 0.5:
            sim.at(chance.uniform(2, 30), lambda: sim.start(compactor, "heir", role="compactor"))
            reached("one coordinator after another")
        sim.run(minutes=5, until=world.is_idle)
        together = [
            {entry.spec.segment for entry in version.entries if entry.status is S.RUNNING}
            for version in world.rules.compactions.versions.values()
        ]
        reached("two trees at work at once", when=max(map(len, together)) > 1)
        made = {
            entry.spec.segment: entry.spec.destination
            for version in world.rules.compactions.versions.values()
            for entry in version.entries
            if isinstance(entry.spec, TieredSpec) and entry.spec.l0_view_ids
        }
        assert len(set(made.values())) == len(made)
        world.conclude()
