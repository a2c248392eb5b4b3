"""Submissions of administrators and of foreign coordinators.

Source: docs/reference/protocol.md 16.4.
"""

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from shale.telemetry.events import Event
from shale.testing.simulation import Simulation
from shale.testing.swarm import SimOptions
from shale.types import CompactionStatus, Ulid
from tests.simulation.compactor.foreign import duplicated_l0, reckless_coordinator
from tests.simulation.compactor.lsm import (
    ONE_AT_A_TIME,
    PASSIVE,
    Load,
    compactor,
    coordinator,
    worker,
    writer,
)
from tests.simulation.compactor.submissions import (
    all_l0,
    careless_admin,
    full_compaction,
    runs_into,
    submit,
    submitted,
    wrong_specs,
)
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.world import World, running

S = CompactionStatus
KINDS = (
    "nothing at all",
    "a missing L0",
    "a missing run",
    "L0s that are not the oldest",
    "L0s with a gap",
    "L0s in the wrong order",
    "runs with a gap",
    "L0s and an old run",
    "a destination that is too low",
    "an existing destination",
    "a destination above its runs",
    "a fresh destination for runs",
)


@contextmanager
def rejections() -> Iterator[dict[str, str]]:
    """Return by job the rule that the coordinator's log names."""
    found: dict[str, str] = {}

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = record.msg
            if isinstance(line, dict) and line.get("event") == Event.COMPACTION_REJECTED.value:
                found.setdefault(line["compaction_id"], line["rule"])

    logger, handler = logging.getLogger("shale"), Collector()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    try:
        yield found
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


@pytest.mark.fault("F4.11")
@row(*KINDS)
def test_every_invalid_submission_fails_by_its_rule(seed: int, reached: CoverageMarks) -> None:
    """Each entry of a foreign tool becomes Failed, the log names the rule, and no row is lost."""
    chance = random.Random(seed)
    with rejections() as named, Simulation(seed) as sim:
        world = World(sim).filled(8).layered(3, gap=3)
        sim.start(compactor, "boss", role="compactor", options=PASSIVE)
        world.run_until(lambda: world.compactions.compactor_epoch > world.manifest.writer_epoch)
        chosen = chance.sample(wrong_specs(world.manifest.tree), 6)
        for wrong in chosen:
            admin = sim.start(submit, "admin", role="admin", specs=[wrong.spec])
            sim.run(minutes=1, until=lambda admin=admin: admin.has_ended)
            (job,) = admin.result
            world.run_until(lambda job=job: not world.has(job, S.SUBMITTED, S.SCHEDULED, S.RUNNING, S.COMPACTED))
            assert world.path_of(job) == [S.SUBMITTED, S.FAILED], wrong.name
            sim.run(seconds=1)  # until the write is answered, and the log says why
            assert named[str(job)] in wrong.rules, f"{wrong.name}: {named[str(job)]}"
            reached(wrong.name)
        world.conclude(PASSIVE)


@pytest.mark.fault("F4.11")
@row("overlap with a running one", "the same twice", "valid beside it", "all runs")
def test_overlapping_and_valid_submissions_lose_no_row(seed: int, reached: CoverageMarks) -> None:
    """Of submissions that exclude each other the first one runs; a submission without common sources runs, too."""
    chance = random.Random(seed)
    with rejections() as named, Simulation(seed) as sim:
        world = World(sim).filled(8).layered(5)
        sim.start(coordinator, "boss", role="compactor", options=PASSIVE)
        hand = sim.start(worker, "hand", role="worker")
        sim.run(seconds=12)
        first, overlapping, beside = runs_into(4, 3), runs_into(*chance.choice(((3,), (4,), (3, 2)))), runs_into(1, 0)
        specs = chance.choice(([first, overlapping, beside], [first, first, beside], [first, all_l0(world.manifest)]))
        if chance.random() < 0.5:
            jobs = submitted(sim, specs)
        else:
            jobs = submitted(sim, specs[:1])
            world.run_until(lambda: world.has(jobs[0], S.RUNNING))
            hand.freeze(15.0)  # it is still Running when the coordinator looks at the others
            jobs += submitted(sim, specs[1:])
        world.run_until(lambda: not any(entry.is_active for entry in world.compactions.entries))
        assert S.COMPLETED in world.path_of(jobs[0]) or S.COMPACTED in world.path_of(jobs[0])
        sim.run(seconds=1)
        if len(specs) == 3:
            assert S.RUNNING not in world.path_of(jobs[1])
            assert named[str(jobs[1])] == "V12"
            assert S.COMPACTED in world.path_of(jobs[2])
            reached("overlap with a running one", when=specs[1] is overlapping)
            reached("the same twice", when=specs[1] is first)
        else:
            assert S.COMPACTED in world.path_of(jobs[1])
            reached("valid beside it")
        full = sim.start(full_compaction, "full", role="admin")
        sim.run(minutes=1, until=lambda: full.has_ended)
        world.run_until(lambda: not any(entry.is_active for entry in world.compactions.entries))
        assert S.COMPACTED in world.path_of(full.result)
        assert len(world.manifest.tree.compacted) == 1
        reached("all runs")
        world.conclude(PASSIVE)


@pytest.mark.fault("F4.11")
@row("in front of the compactions", "between compactions and manifest")
def test_a_submission_of_a_flushed_l0_is_accepted(seed: int, reached: CoverageMarks) -> None:
    """The coordinator reads the compactions and then the manifest, so the manifest has all that a submission names.

    It stands still in front of one of its reads while an L0 is flushed and submitted.
    """
    chance = random.Random(seed)
    with Simulation(seed, options=SimOptions(latency_s=0.05)) as sim:
        world = World(sim).filled(2)
        boss = sim.start(compactor, "boss", role="compactor", options=PASSIVE)
        sim.run(seconds=12)
        for number in range(4):
            part = chance.choice(("/compactions/", "/manifest/"))
            world.pause_at(boss, "get", part, 6.0, skip=chance.randrange(2))
            sim.run(seconds=30)
            assert boss.is_suspended, "it reads nothing"
            flushing = sim.start(writer, f"w{number}", role="writer", flushes=1, pause_s=0.0, load=Load())
            sim.run(seconds=5, until=lambda flushing=flushing: flushing.has_ended)
            assert flushing.error is None
            (job,) = submitted(sim, [all_l0(world.manifest)])
            if boss.is_suspended:
                reached(
                    "in front of the compactions" if part == "/compactions/" else "between compactions and manifest"
                )
            world.run_until(lambda job=job: not world.has(job, S.SUBMITTED, S.SCHEDULED, S.RUNNING, S.COMPACTED))
            assert S.COMPACTED in world.path_of(job), world.path_of(job)
        world.conclude(PASSIVE)


@pytest.mark.fault("F4.11b")
@row("inherited as Submitted", "inherited as Scheduled", "inherited as Running", "inherited as Compacted")
def test_a_foreign_job_without_the_oldest_l0_is_failed(seed: int, reached: CoverageMarks) -> None:
    """Its successor validates it at start and before the commit: it fails, and the rows of the oldest L0 exist."""
    chance = random.Random(seed)
    with rejections() as named, Simulation(seed) as sim:
        world = World(sim).filled(4, Load(keys=6, rows_max=12))
        tree = world.manifest.tree
        bad = replace(all_l0(world.manifest), l0_view_ids=tuple(view.id for view in tree.l0[:2]))
        wanted = chance.choice((S.SUBMITTED, S.SCHEDULED, S.RUNNING, S.COMPACTED))
        at_first = S.SUBMITTED if wanted is S.SUBMITTED else S.SCHEDULED
        boss = sim.start(reckless_coordinator, role="compactor", specs=[bad], status=at_first)
        sim.run(minutes=1)
        (job,) = boss.result
        if wanted in (S.RUNNING, S.COMPACTED):
            hand = sim.start(worker, "hand", role="worker")
            world.run_until(lambda: world.has(job, S.RUNNING))
            if wanted is S.RUNNING:
                hand.freeze(12.0)
            else:
                world.run_until(lambda: world.has(job, S.COMPACTED))
        assert world.has(job, wanted)
        reached(f"inherited as {wanted.name.capitalize()}")
        world.fail_in(compactor, job)
        sim.run(seconds=1)
        assert named[str(job)] == "V7"
        assert world.manifest.tree.l0 == tree.l0
        world.conclude(PASSIVE)


@pytest.mark.fault("F4.11")
@row("inherited as Submitted", "inherited as Scheduled")
def test_an_l0_listed_twice_is_promoted_and_its_jobs_fail(seed: int, reached: CoverageMarks) -> None:
    """A foreign union lists an SST twice: the coordinator promotes these L0s and applies no compaction of them."""
    chance = random.Random(seed)
    with rejections() as named, Simulation(seed) as sim:
        world = World(sim, rows=False, union=True).filled(4)
        sim.start(duplicated_l0, role="writer", position=chance.randrange(4))
        sim.run(minutes=1)
        listed = [view.sst.id for view in world.manifest.tree.l0]
        status = chance.choice((S.SUBMITTED, S.SCHEDULED))
        boss = sim.start(reckless_coordinator, role="compactor", specs=[all_l0(world.manifest)], status=status)
        sim.run(minutes=1)
        (job,) = boss.result
        assert world.has(job, status)
        reached(f"inherited as {status.name.capitalize()}")
        world.fail_in(compactor, job)
        sim.run(minutes=1)
        # What another coordinator has taken on is checked first; what was only submitted, once the L0s are gone.
        assert named[str(job)] == ("V13" if status is S.SCHEDULED else "V4")
        tree = world.manifest.tree
        assert not tree.l0
        assert [view.sst.id for run in tree.compacted for view in run.ssts] == listed


@pytest.mark.fault("F4.12")
@row("V12 before it began", "failed by the sweep", "the rewrite came first", "one after the other")
def test_one_of_two_jobs_with_one_run_id_is_applied(seed: int, reached: CoverageMarks) -> None:
    """``[3, 2] -> 2`` and ``[2] -> 2``: after one is committed, the other one's result is never applied."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(4, Load(keys=6, rows_max=10)).layered(4)
        wide, narrow = runs_into(3, 2), runs_into(2)
        specs = chance.choice(([wide, narrow], [narrow, wide]))
        if chance.random() < 0.6:
            two_running(sim, world, chance, specs)
            first, second = world.compactions.entries[0].id, world.compactions.entries[1].id
            sim.start(coordinator, "heir", role="compactor", options=PASSIVE)
            world.run_until(lambda: not any(entry.is_active for entry in world.compactions.entries), minutes=20)
            done = [job for job in (first, second) if S.COMPLETED in world.path_of(job)]
            failed = [job for job in (first, second) if S.FAILED in world.path_of(job)]
            assert len(done) + len(failed) >= 1
            assert len(done) <= 1, "both results were applied"
            reached("failed by the sweep", when=bool(failed))
            reached("the rewrite came first", when=len(world.manifest.tree.compacted) == 4)
        else:
            boss = sim.start(coordinator, "boss", role="compactor", options=PASSIVE)
            sim.start(worker, "hand", role="worker")
            sim.run(seconds=10)
            jobs = submitted(sim, specs[:1])
            jobs += submitted(sim, specs[1:], after=chance.choice((0.0, 10.0)))
            world.run_until(lambda: not any(entry.is_active for entry in world.compactions.entries))
            paths = [world.path_of(job) for job in jobs]
            assert S.COMPACTED in paths[0]
            reached("V12 before it began", when=paths[1] == [S.SUBMITTED, S.FAILED])
            reached("one after the other", when=S.COMPACTED in paths[1])
            assert boss.error is None
        world.conclude(PASSIVE)


def two_running(sim: Simulation, world: World, chance: random.Random, specs: list) -> None:
    """Let two workers run jobs that a foreign coordinator accepted; return while one or both are running."""
    boss = sim.start(reckless_coordinator, role="compactor", specs=specs)
    sim.run(minutes=1)
    jobs: list[Ulid] = boss.result
    for name, job in zip(("w1", "w2"), jobs, strict=True):
        hand = sim.start(worker, name, role="worker", options=ONE_AT_A_TIME)
        world.run_until(lambda job=job: world.has(job, S.RUNNING))
        hand.freeze(chance.choice((10.0, 14.0, 18.0)))


@pytest.mark.fault("F4.11", "F4.12")
@row("an heir took over", "jobs of the scheduler beside them")
def test_mixed_submissions_lose_no_row(seed: int, reached: CoverageMarks) -> None:
    """Each becomes Failed or runs; runs are rebuilt under their ids, and no stale result replaces a newer run."""
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
            reached("an heir took over")
        sim.run(minutes=10, until=lambda: world.is_settled() and not running(sim, "admin"))
        reached("jobs of the scheduler beside them", when=len(world.owners()) > 2)
        world.conclude()
