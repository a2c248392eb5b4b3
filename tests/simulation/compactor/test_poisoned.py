"""Jobs that no attempt can finish end as Failed, and block nothing (docs/reference/protocol.md 6.9, "Failure")."""

import random
from dataclasses import replace

import anyio

from shale.compaction.records import CompactionRecord
from shale.errors import UnavailableError
from shale.testing.simulation import SimProcess, Simulation
from shale.types import CompactionStatus, Sst, Ulid
from shale_compactor.execution.job import Job, JobExecutor
from shale_compactor.execution.progress import JobProgress
from shale_compactor.worker.worker import Worker
from tests.simulation.compactor.lsm import MANY, OPTIONS, compactions_of, coordinator, manifests_of, worker
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.world import World

S = CompactionStatus
QUICK = replace(OPTIONS, coordinator=replace(OPTIONS.coordinator, cancel_cooldown_s=60.0))
ATTEMPTS = 3


class Failing(JobExecutor):
    """An executor whose jobs fail after a while."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        """See ``JobExecutor``."""
        await anyio.sleep(0.5)
        raise self._error


async def failing_worker(process: SimProcess, *, error: Exception) -> None:
    """Run a worker whose jobs all fail."""
    options = replace(OPTIONS.worker, max_job_attempts=ATTEMPTS)
    await Worker(manifests_of(process), compactions_of(process), Failing(error), process.env, options).run()


async def record_of(process: SimProcess, *, job: Ulid) -> CompactionRecord | None:
    """Read the record of a compaction."""
    return await compactions_of(process).records.read(job)


@row("at the first attempt", "after the last attempt", "by several workers")
def test_a_poisoned_job_ends_and_its_l0s_are_compacted_by_another_worker(seed: int, reached: CoverageMarks) -> None:
    """No operator action is needed: the policy proposes the sources again after a pause."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(4, MANY)
        sim.start(coordinator, "boss", role="compactor", options=QUICK)
        error = chance.choice((ZeroDivisionError("in the filter"), UnavailableError("another service")))
        count = 1 + chance.randrange(2)
        sick = [sim.start(failing_worker, f"sick{each}", role="worker", error=error) for each in range(count)]
        world.run_until(lambda: world.any_in(S.FAILED), minutes=10)
        (job,) = (entry.id for entry in world.compactions.entries if entry.status is S.FAILED)
        assert world.path_of(job).count(S.RUNNING) <= ATTEMPTS
        admin = sim.start(record_of, "admin", role="admin", job=job)
        sim.run(seconds=1)
        record = admin.result
        assert record.status is S.FAILED
        assert str(error) in record.error
        assert record.attempts_count == (1 if isinstance(error, ZeroDivisionError) else ATTEMPTS)
        for process in sick:
            process.kill()
        sim.start(worker, "healthy", role="worker")
        world.run_until(lambda: not world.manifest.tree.l0, minutes=20)
        reached("at the first attempt", when=record.attempts_count == 1)
        reached("after the last attempt", when=record.attempts_count == ATTEMPTS)
        reached("by several workers", when=len(world.owners()[job]) > 1)
        world.conclude()
