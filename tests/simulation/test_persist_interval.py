"""What a killed worker takes with it: ``persist_every_sst`` publishes every so often (docs/protocol.md 6.9)."""

from itertools import pairwise

import anyio
import pytest

from shale.format.compactions import decode_compactions
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.testing.simulation import SimProcess, Simulation
from shale.types import EVERYTHING, CompactionContext, Sst, SstInfo
from shale_compactor.execution.job import Job
from shale_compactor.execution.progress import JobProgress
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.worker import Worker
from tests.simulation.lsm import ROOT
from tests.simulation.test_slow_store import coordinator, create, versions_of

SST_S = 0.05
JOB_S = 40.0


class QuickSsts:
    """Finishes twenty SSTs a second."""

    def __init__(self, process: SimProcess) -> None:
        self._env = process.env

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        progress.plan([EVERYTHING])
        for _ in range(int(JOB_S / SST_S)):
            await anyio.sleep(SST_S)
            info = SstInfo(first_entry=b"a", last_entry=b"a", index_offset=job.input_bytes)
            progress.add(0, Sst(id=self._env.ids.ulid(at_least_ms=job.id.ms), info=info))
        return progress.outputs()


async def worker(process: SimProcess, *, options: WorkerOptions) -> None:
    manifests = ManifestStore(process.store, ROOT, process.env)
    compactions = CompactionsStore(process.store, ROOT, process.env)
    await Worker(manifests, compactions, QuickSsts(process), process.env, options).run()


def published(simulation: Simulation) -> list[tuple[float, int]]:
    """When a version named more SSTs than the one before, and how many."""
    found = []
    for mutation in versions_of(simulation):
        entries = decode_compactions(mutation.data, path=mutation.key).entries
        contexts: list[CompactionContext] = [entry.ctx for entry in entries if entry.ctx is not None]
        count = sum(len(sub.output_ssts) for context in contexts for sub in context.subcompactions)
        if count and (not found or count > found[-1][1]):
            found.append((mutation.time_s, count))
    return found


@pytest.mark.parametrize(("interval_s", "unpublished_max"), [(1.0, 40), (0.2, 15)])
def test_progress_is_published_as_often_as_the_interval_says(interval_s: float, unpublished_max: int) -> None:
    """Neither more often, which costs requests, nor much less, which costs work."""
    options = WorkerOptions(persist_every_sst=True, persist_interval_s=interval_s, heartbeat_interval_s=10)
    with Simulation(1) as simulation:
        simulation.start(create, "admin", jobs=1)
        simulation.run(seconds=10)
        simulation.start(coordinator, "boss", role="compactor")
        simulation.start(worker, "quick", role="worker", options=options)
        simulation.run(seconds=JOB_S + 60)
    found = published(simulation)
    assert len(found) > 10
    assert max(later - sooner for (_, sooner), (_, later) in pairwise(found)) <= unpublished_max
    assert min(later - sooner for (sooner, _), (later, _) in pairwise(found)) > 0.5 * interval_s
