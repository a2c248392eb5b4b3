"""The administrator's API under faults: a submission is stored once, and every wait ends.

Source: docs/reference/protocol.md 6.13 and 16.4.
"""

from dataclasses import dataclass, field

import anyio

from shale.admin.compactions import CompactionAdmin
from shale.compaction.cancel import TooLateToCancel
from shale.compaction.requests import Full, Sources
from shale.compaction.status import CompactionInfo, Phase
from shale.errors import InvalidCompaction, NotFoundError
from shale.testing.simulation import SimProcess, Simulation
from shale.types import CompactionStatus, Ulid
from tests.simulation.compactor.lsm import PASSIVE, ROOT, coordinator, manifests_of, worker, writer
from tests.simulation.conftest import FEW_SEEDS
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.world import World

S = CompactionStatus


@dataclass
class Told:
    """The results that administrators received, by job."""

    submitted: list[Ulid] = field(default_factory=list)
    ended: dict[Ulid, CompactionInfo] = field(default_factory=dict)
    cancelled: set[Ulid] = field(default_factory=set)
    too_late: int = 0
    refused: int = 0
    forgotten: int = 0


async def administrator(process: SimProcess, *, told: Told, rounds: int, cancels: bool) -> None:
    """Submit every kind of request, cancel some jobs, and wait for the others."""
    admin = CompactionAdmin(process.store, ROOT, process.env, process.metrics)
    for _ in range(rounds):
        await anyio.sleep(process.rng.uniform(0, 10))
        views = tuple(view.id for view in (await manifests_of(process).read_latest()).value.tree.l0)
        request = Sources(l0_view_ids=views) if views and process.rng.random() < 0.5 else Full()
        try:
            jobs = await admin.submit(request)
        except InvalidCompaction:
            told.refused += 1
            continue
        told.submitted += [job.id for job in jobs]
        for job in jobs:
            try:
                if cancels and process.rng.random() < 0.5:
                    await anyio.sleep(process.rng.uniform(0, 20))
                    await cancel(admin, job.id, told)
                told.ended[job.id] = await admin.wait(job.id, poll_interval_s=process.rng.uniform(0.5, 5))
            except NotFoundError:
                told.forgotten += 1


async def cancel(admin: CompactionAdmin, job: Ulid, told: Told) -> None:
    try:
        await admin.cancel(job)
    except TooLateToCancel:
        told.too_late += 1
    else:
        told.cancelled.add(job)


def was_committed(world: World, job: Ulid) -> bool:
    """Return whether any manifest contained the job's result."""
    made = [entry.output_ssts for entry in world.versions_of(job) if entry.status in (S.COMPACTED, S.COMPLETED)]
    spec = next(iter(world.versions_of(job))).spec
    outputs = [[sst.id for sst in each] for each in made]
    return any(
        run.id == spec.destination and [view.sst.id for view in run.ssts] in outputs
        for manifest in world.rules.manifests.versions.values()
        for _, tree in manifest.trees()
        for run in tree.compacted
    )


@row("completed", "failed", "cancelled", "too late to cancel", "refused", default=FEW_SEEDS)
def test_administrators_beside_a_coordinator_and_a_worker(seed: int, reached: CoverageMarks) -> None:
    """Two administrators at once: every job is stored as submitted, and ends as its administrator was informed."""
    with Simulation(seed) as sim:
        world = World(sim).filled(4).layered(2)
        told = Told()
        sim.start(coordinator, "boss", role="compactor", options=PASSIVE)
        sim.start(worker, "hand", role="worker")
        sim.start(writer, "writer", role="writer", flushes=4)
        for name in ("alice", "bob"):
            sim.start(administrator, name, role="admin", told=told, rounds=4, cancels=True)
        sim.run(minutes=30)
        world.settle(PASSIVE)
        sim.run(minutes=30)
        for job in told.submitted:
            path = world.path_of(job)
            assert path[0] is S.SUBMITTED, f"{job} was submitted and is not in the file"
            assert path.count(S.SUBMITTED) <= path.count(S.SCHEDULED) + 1
        for job, info in told.ended.items():
            completed = was_committed(world, job)
            assert (info.phase is Phase.COMPLETED) == completed, f"{job}: {info.phase}, {world.path_of(job)}"
            assert (info.error is None) == completed
        for job in told.cancelled:
            assert not was_committed(world, job), f"{job} was cancelled and then committed"
        endings = {info.phase for info in told.ended.values()}
        reached("completed", when=Phase.COMPLETED in endings)
        reached("failed", when=any(info.error not in (None, "cancelled") for info in told.ended.values()))
        reached("cancelled", when=bool(told.cancelled))
        reached("too late to cancel", when=told.too_late > 0)
        reached("refused", when=told.refused > 0)
        world.conclude(PASSIVE)
