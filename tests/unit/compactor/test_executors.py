"""Who carries out which job."""

import pytest

from shale.types import Sst
from shale_compactor.execution.job import Job, plan_job
from shale_compactor.execution.progress import JobProgress
from shale_compactor.executors import ChosenExecutor
from tests.unit.compactor.values import entry, manifest, spec, sst, tree

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Named:
    """An executor that says who it is by its output."""

    def __init__(self, ms: int) -> None:
        self.output = sst(ms)

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        return (self.output,)


@pytest.mark.parametrize(("min_bytes", "goes"), [(301, "local"), (300, "remote"), (1, "remote")])
async def test_jobs_go_where_their_size_suits(min_bytes: int, goes: str) -> None:
    """From the limit on, by the estimate of schedulers."""
    job = plan_job(entry(500, spec(l0=(3, 2, 1), to=1)), manifest(tree(l0=(3, 2, 1))))
    assert job.input_bytes == 300
    executors = {"local": Named(1), "remote": Named(2)}
    chosen = ChosenExecutor(executors["local"], executors["remote"], min_bytes=min_bytes)
    progress = JobProgress(retention_min_seq=job.manifest.recent_snapshot_min_seq)
    assert await chosen.run(job, progress) == (executors[goes].output,)
