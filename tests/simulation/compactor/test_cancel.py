"""An administrator cancels jobs while a coordinator and workers process them.

Source: docs/reference/protocol.md 6.13.
"""

import random

from shale.compaction.cancel import TooLateToCancel, with_cancelled
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale.types import CompactionStatus, Ulid
from tests.simulation.compactor.lsm import MANY, PASSIVE, compactions_of, coordinator, worker
from tests.simulation.compactor.submissions import all_l0, submitted
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.world import World

S = CompactionStatus


async def cancelling_admin(process: SimProcess, *, job: Ulid) -> None:
    """Cancel one job, with retries after conflicts."""
    stored = await compactions_of(process).load()
    await stored.apply(lambda current: with_cancelled(current.value, job))


@row(
    "Submitted",
    "Scheduled",
    "Running",
    "too late",
    "the coordinator's write lost to it",
    "the worker's write lost to it",
)
def test_a_job_is_cancelled_while_others_write(seed: int, reached: CoverageMarks) -> None:
    """A cancelled job stays Failed: no write of a coordinator or a worker reactivates it, and no result is applied."""
    chance = random.Random(seed)
    with Simulation(seed, options=SimOptions(latency_s=chance.choice((0.02, 0.4)))) as sim:
        world = World(sim).filled(4, MANY)
        boss = sim.start(coordinator, "boss", role="compactor", options=PASSIVE)
        hand = sim.start(worker, "hand", role="worker")
        hand.network.delay("put", "/compacted/", 2.0)
        world.run_until(lambda: world.compactions.compactor_epoch > 0)
        sim.run(seconds=chance.uniform(1, 10))
        wanted = chance.choice((None, S.SUBMITTED, S.SCHEDULED, S.RUNNING, S.COMPACTED))
        if wanted is None:
            world.pause_at(boss, "put", "/compactions/", chance.uniform(2, 5))
        (job,) = submitted(sim, [all_l0(world.manifest)])
        if wanted is None and not boss.is_suspended:
            sim.run(minutes=1)  # until the coordinator is about to schedule it
        elif wanted is not None:
            world.run_until(lambda: world.has(job, wanted))
            if wanted is S.RUNNING:
                sim.run(seconds=chance.uniform(0, 10))
            hand.freeze_before("put", "/compactions/", chance.uniform(1, 5))
        before = world.outcome(job)
        admin = sim.start(cancelling_admin, "canceller", role="admin", job=job)
        sim.run(minutes=1, until=lambda: admin.has_ended)
        was_cancelled = admin.error is None
        assert was_cancelled or isinstance(admin.error, TooLateToCancel), admin.error
        sim.run(minutes=3)
        assert (boss.error, hand.error) == (None, None)
        assert world.outcome(job) is (S.FAILED if was_cancelled else S.COMPLETED)
        assert bool(world.manifest.tree.compacted) != was_cancelled
        if was_cancelled:
            reached(before.name.capitalize(), when=before in (S.SUBMITTED, S.SCHEDULED, S.RUNNING))
            for process, who in ((boss, "coordinator"), (hand, "worker")):
                lost = [
                    each for each in sim.history.refused(process.name) if sim.history.creator(each.key) == admin.name
                ]
                reached(f"the {who}'s write lost to it", when=bool(lost))
        else:
            reached("too late")
        world.conclude(PASSIVE)
