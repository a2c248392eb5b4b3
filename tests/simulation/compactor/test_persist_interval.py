"""``persist_every_sst`` bounds the work that a killed worker loses.

Source: docs/reference/protocol.md 6.9.
"""

from itertools import pairwise

import pytest

from shale.format.compactions import decode_compactions
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.testing.simulation import SimProcess, Simulation
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.worker import Worker
from tests.simulation.compactor.lsm import ROOT
from tests.simulation.compactor.test_slow_store import LongJob, coordinator, create, versions_of

SST_S = 0.05
JOB_S = 15.0


class QuickSsts(LongJob):
    """An executor that finishes twenty SSTs a second."""

    job_s = JOB_S
    sst_s = SST_S


async def worker(process: SimProcess, *, options: WorkerOptions) -> None:
    manifests = ManifestStore(process.store, ROOT, process.env)
    compactions = CompactionsStore(process.store, ROOT, process.env)
    await Worker(manifests, compactions, QuickSsts(process), process.env, options).run()


def published(simulation: Simulation) -> list[tuple[float, int]]:
    """Return the times at which a version named more SSTs than the one before, and how many more."""
    found = []
    for mutation in versions_of(simulation):
        entries = decode_compactions(mutation.data, path=mutation.key).entries
        contexts = [entry.ctx for entry in entries if entry.ctx is not None]
        count = sum(len(sub.output_ssts) for context in contexts for sub in context.subcompactions)
        if count and (not found or count > found[-1][1]):
            found.append((mutation.time_s, count))
    return found


@pytest.mark.parametrize(("interval_s", "unpublished_max"), [(1.0, 40), (0.2, 15)])
def test_progress_is_published_as_often_as_the_interval_says(interval_s: float, unpublished_max: int) -> None:
    """More often would cost requests, less often would cost work."""
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
