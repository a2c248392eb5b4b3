"""Workers that die, stall, resume and compete.

Source: docs/reference/protocol.md 16.4.
"""

import random
from dataclasses import replace

import pytest

from shale.compaction.entries import with_status
from shale.testing.faults import Fault
from shale.testing.sim_network import HookPoint
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale.types import Compaction, CompactionStatus, RunId, TieredSpec, Ulid
from tests.simulation.compactor.foreign import reckless_coordinator, reckless_failure, start_overlapping_jobs
from tests.simulation.compactor.lsm import MANY, ONE_AT_A_TIME, OPTIONS, PASSIVE, Load, coordinator, worker, writer
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.request_counts import at_most
from tests.simulation.world import World

S = CompactionStatus
SLOW = replace(OPTIONS.executor, max_sst_size_bytes=128)


def sluggish(process: SimProcess, seconds: float) -> None:
    """Delay each output, so that a heartbeat follows it."""
    for number in range(60):
        process.network.hook(HookPoint.BEFORE, "put", "/compacted/", lambda: process.freeze(seconds), skip=number)


@pytest.mark.fault("F4.2")
@row("left outputs that the successor resumed from", "died with nothing published", "died between jobs", within=250)
def test_a_worker_killed_after_any_request_loses_no_row(seed: int, reached: CoverageMarks) -> None:
    """Its job is reclaimed after the timeout and resumed; its unused outputs are garbage."""
    chance = random.Random(seed)
    with Simulation(seed, options=SimOptions(latency_s=chance.choice((0.02, 0.5, 1.5)))) as sim:
        world = World(sim).filled(6, MANY)
        sim.start(coordinator, "boss", role="compactor")
        victim = sim.start(worker, "victim", role="worker", executor=SLOW)
        sluggish(victim, 1.2)
        op, key_part, count = chance.choice(
            (("*", "", at_most(sim, 100, two_phase=180)), ("put", "/compacted/", 16), ("put", "/compactions/", 12))
        )
        left: list[Compaction] = []

        def die() -> None:
            left.extend(with_status(world.compactions, S.RUNNING))
            victim.kill()

        moment = chance.choice((HookPoint.BEFORE, HookPoint.AFTER))
        victim.network.hook(moment, op, key_part, die, skip=chance.randrange(count))
        sim.start(worker, "heir", role="worker", options=ONE_AT_A_TIME)
        sim.run(hours=1, until=world.is_settled)
        assert world.is_settled()
        published = [entry for entry in left if entry.ctx and any(sub.output_ssts for sub in entry.ctx.subcompactions)]
        for entry in published:
            assert entry.ctx is not None
            kept = {sst.id for sub in entry.ctx.subcompactions for sst in sub.output_ssts}
            final = next(now for now in world.versions_of(entry.id) if now.status is S.COMPACTED)
            assert kept <= {sst.id for sst in final.output_ssts}, "finished work was done again"
        reached("left outputs that the successor resumed from", when=bool(published))
        reached("died with nothing published", when=bool(left) and not published)
        reached("died between jobs", when=victim.is_killed and not left)
        world.conclude()


@pytest.mark.fault("F4.3")
@row("woke before another had claimed", "woke while another was at work", "woke after the commit")
def test_a_frozen_worker_cannot_publish_a_job_that_was_redone(seed: int, reached: CoverageMarks) -> None:
    """It stops at its next heartbeat or at its finish, and none of its writes is accepted."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(4, Load(keys=30, snapshots=True))
        sim.start(coordinator, "boss", role="compactor")
        sleeper = sim.start(worker, "sleeper", role="worker")
        world.run_until(lambda: world.any_in(S.RUNNING))
        (job,) = (entry.id for entry in world.compactions.entries)
        sleep_s = chance.choice((36.0, 40.0, 43.0, 300.0))
        sleeper.network.hook(HookPoint.BEFORE, "*", "", lambda: sleeper.freeze(sleep_s), skip=chance.randrange(20))
        other = sim.start(worker, "other", role="worker")
        if chance.random() < 0.5:
            # The other one is at work for so long that the sleeper wakes meanwhile.
            other.network.hook(HookPoint.AFTER, "put", "/compactions/", lambda: other.freeze(15.0))
        woken, (mine,) = [S.SUBMITTED], world.owners()[job]
        sim.at(1.0, lambda: watch_wake_up(sleeper, woken, world, job, mine))
        sim.run(minutes=7)
        assert world.is_settled()
        reached("woke before another had claimed", when=woken[-1] is S.SCHEDULED)
        reached("woke while another was at work", when=woken[-1] is S.RUNNING)
        reached("woke after the commit", when=woken[-1] in (S.COMPLETED, S.FAILED))
        world.conclude()
        assert sleeper.error is None


def watch_wake_up(sleeper: SimProcess, woken: list[CompactionStatus], world: World, job: Ulid, mine: str) -> None:
    """Record the state of the job while the process is frozen; the last entry is its state at the wake-up."""
    if sleeper.is_suspended:
        entry = world.compactions.get(job)
        is_mine = entry is not None and entry.worker is not None and entry.worker.worker_id == mine
        woken.append(entry.status if entry is not None and not is_mine else S.SUBMITTED)
    if sleeper.sim.loop.time() < 400:
        sleeper.sim.at(0.5, lambda: watch_wake_up(sleeper, woken, world, job, mine))


@pytest.mark.fault("F4.3")
@row("failed at a heartbeat", "failed at the finish")
def test_a_failed_job_that_names_its_worker_stays_failed(seed: int, reached: CoverageMarks) -> None:
    """SlateDB may leave the worker in a Failed entry; the worker checks the state too, and stops."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(4, MANY)
        boss = sim.start(reckless_coordinator, role="compactor", specs=[l0_spec(world)])
        sim.run(minutes=1)
        (job,) = boss.result
        busy = sim.start(worker, "busy", role="worker", executor=SLOW)
        if chance.random() < 0.5:
            world.run_until(lambda: world.has(job, S.RUNNING))
            busy.freeze_before("put", "/compacted/", 12.0, skip=chance.randrange(4))
            reached("failed at a heartbeat")
        else:
            busy.freeze_before("put", "/compactions/", 12.0, skip=1 + chance.randrange(3))
            reached("failed at the finish")
        sim.run(minutes=1, until=lambda: busy.is_suspended)
        sim.run(seconds=1)
        if world.has(job, S.RUNNING):
            sim.start(reckless_failure, role="compactor", job=job)
        sim.run(minutes=2)
        assert busy.error is None
        world.conclude(PASSIVE)


def l0_spec(world: World) -> TieredSpec:
    """Return a spec of all L0s into a new run."""
    tree = world.manifest.tree
    newest = max((run.id for run in tree.compacted), default=-1)
    return TieredSpec(l0_view_ids=tuple(view.id for view in tree.l0), destination=RunId(newest + 1))


@pytest.mark.fault("F4.4")
@row("claimed again by the same worker", "the local run was still at work")
def test_a_frozen_worker_that_reclaims_its_job_runs_it_once(seed: int, reached: CoverageMarks) -> None:
    """The local run is stopped before the job is claimed anew, so no two runs share a list of outputs."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(4, MANY)
        sim.start(coordinator, "boss", role="compactor")
        only = sim.start(worker, "only", role="worker", executor=SLOW)
        only.network.delay("put", "/compacted/", 2.0)
        world.run_until(lambda: world.any_in(S.RUNNING))
        (job,) = (entry.id for entry in world.compactions.entries)
        only.network.hook(HookPoint.BEFORE, "*", "", lambda: only.freeze(45.0), skip=chance.randrange(20))
        sim.run(minutes=2, until=lambda: world.has(job, S.SCHEDULED) or world.is_settled())
        was_reclaimed = world.has(job, S.SCHEDULED)
        reached("the local run was still at work", when=was_reclaimed)
        sim.run(minutes=10, until=world.is_settled)
        assert world.is_settled()
        path = world.path_of(job)
        reached("claimed again by the same worker", when=path.count(S.RUNNING) > 1 and len(world.owners()[job]) == 1)
        assert only.error is None
        world.conclude()


@pytest.mark.fault("F4.5")
@row(
    "a claim lost to the coordinator",
    "the coordinator lost to a claim",
    "the answer to a claim was lost",
    "the answer to the coordinator was lost",
)
def test_a_claim_that_races_with_the_coordinator_leaves_one_owner(seed: int, reached: CoverageMarks) -> None:
    """In either order, and with lost responses on both sides, each job has one owner at a time."""
    chance = random.Random(seed)
    options = SimOptions(latency_s=chance.choice((0.1, 0.5, 1.5)), attributes=chance.random() < 0.5)
    with Simulation(seed, options=options) as sim:
        # One job for each tree, so that jobs are claimed while others are scheduled and committed.
        world = World(sim).filled(
            0, loads=[Load(segment=name) for name in (b"", b"a/", b"b/", b"c/") for _ in range(4)]
        )
        boss = sim.start(coordinator, "boss", role="compactor")
        workers = [sim.start(worker, name, role="worker", options=ONE_AT_A_TIME) for name in ("w1", "w2")]
        # One of the first puts of each: claims of the workers, jobs of the coordinator.
        for process in (boss, *workers):
            first = 2 if process is boss else 0
            skip = first + chance.randrange(3)
            process.fail("put", "/compactions/", chance.choice((Fault.AFTER, Fault.LATE)), skip=skip)
        sim.start(writer, "second", role="writer", flushes=6, pause_s=10.0)
        sim.run(hours=1, until=world.is_settled)
        assert world.is_settled()
        assert boss.error is None
        # A job changes hands only by a reclaim, and no worker here is silent for that long.
        assert all(len(owners) == 1 for owners in world.owners().values()), world.owners()
        for refusal in sim.history.refusals:
            winner = sim.history.creator(refusal.key)
            reached("a claim lost to the coordinator", when=refusal.process in {"w1", "w2"} and winner == "boss")
            reached("the coordinator lost to a claim", when=refusal.process == "boss" and winner in {"w1", "w2"})
        reached("the answer to a claim was lost", when=any(not process.network.has_faults for process in workers))
        reached("the answer to the coordinator was lost", when=not boss.network.has_faults)
        world.conclude()


@pytest.mark.fault("F4.6")
@row("both tried to claim the same version", "the answer to a claim was lost")
def test_one_of_two_workers_claims_an_entry(seed: int, reached: CoverageMarks) -> None:
    """One wins; the other reads the new version and finds no unclaimed entry."""
    chance = random.Random(seed)
    with Simulation(seed, options=SimOptions(latency_s=0.05, attributes=chance.random() < 0.7)) as sim:
        world = World(sim).filled(4)
        sim.start(coordinator, "boss", role="compactor")
        workers = [sim.start(worker, name, role="worker") for name in ("w1", "w2")]
        early, late = chance.sample(workers, 2)
        late.freeze_before("put", "/compactions/", chance.uniform(6, 20))
        if chance.random() < 0.5:
            early.fail("put", "/compactions/", Fault.AFTER)
            reached("the answer to a claim was lost")
        world.run_until(lambda: world.any_in(S.RUNNING))
        (job,) = (entry.id for entry in world.compactions.entries)
        sim.run(minutes=5, until=world.is_settled)
        assert len(world.owners()[job]) == 1, world.owners()
        lost = [refusal for process in workers for refusal in sim.history.refused(process.name, "/compactions/")]
        contested = [refusal for refusal in lost if sim.history.creator(refusal.key) in {"w1", "w2"}]
        reached("both tried to claim the same version", when=bool(contested))
        assert all(process.error is None for process in workers)
        world.conclude()


@pytest.mark.fault("F4.23")
@row("waited for a database", "waited for the compactions")
def test_a_worker_without_a_coordinator_waits_and_writes_nothing(seed: int, reached: CoverageMarks) -> None:
    """Without a compactions file or a database it waits and writes nothing; it starts when there is work."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim)
        if chance.random() < 0.5:
            early = sim.start(worker, "early", role="worker")
            sim.run(minutes=2)
            reached("waited for a database")
            world.filled(4)
        else:
            world.filled(4)
            early = sim.start(worker, "early", role="worker")
            sim.run(minutes=2)
            reached("waited for the compactions")
        assert early.error is None
        assert not [mutation for mutation in sim.history.mutations if mutation.process == "early"]
        sim.start(coordinator, "boss", role="compactor")
        sim.run(minutes=5, until=world.is_settled)
        assert world.manifest.tree.compacted, "the worker never noticed"
        world.conclude()


@pytest.mark.fault("F4.28")
@row("the finishing write lost to a heartbeat", "the copy that won still said Running")
def test_a_heartbeat_with_an_older_copy_does_not_revive_a_finished_job(seed: int, reached: CoverageMarks) -> None:
    """The coordinator has finished a job locally; before its write, a worker stores a copy in which it is active.

    Inherited jobs ``[3, 2] -> 2`` and ``[2] -> 2``: committing one fails the other in the same step.
    """
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(4, MANY).layered(4)
        _, second, _, slow = start_overlapping_jobs(world, frozen_s=12.0, executor=SLOW)
        sluggish(slow, 3.0)
        heir = sim.start(coordinator, "heir", role="compactor", options=PASSIVE)
        world.run_until(lambda: world.compactions.compactor_epoch > 0 and heir.is_running)
        heir.network.hook(HookPoint.AFTER, "put", "/manifest/", lambda: arm(heir, chance.uniform(2, 8)), skip=1)
        world.run_until(lambda: not world.has(second, S.RUNNING, S.SCHEDULED, S.COMPACTED), minutes=30)
        path = world.path_of(second)
        assert path.count(S.FAILED) + path.count(S.COMPLETED) == 1
        assert path[-1] in (S.FAILED, S.COMPLETED), path
        lost = sim.history.refused("heir", "/compactions/")
        reached("the finishing write lost to a heartbeat", when=bool(lost))
        reached(
            "the copy that won still said Running", when=any(_says_running(world, each.key, second) for each in lost)
        )
        world.conclude(PASSIVE)


def arm(process: SimProcess, seconds: float) -> None:
    """Sleep before the next write of the compactions."""
    process.freeze_before("put", "/compactions/", seconds)


def _says_running(world: World, key: str, job: Ulid) -> bool:
    file_id = world.rules.compactions.namespace.parse(key)
    version = world.rules.compactions.versions.get(file_id or 0)
    entry = version.get(job) if version is not None else None
    return entry is not None and entry.status is S.RUNNING
