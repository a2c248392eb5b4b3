"""The choice of the executor of a job."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from shale import plugins
from shale.env import Env, InlineCpu
from shale.errors import InvalidRequestError
from shale.service.config.settings import load_settings
from shale.service.memory.process_memory import ProcessMemory
from shale.store.memory import MemoryStore
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import EVERYTHING, Sst
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.job import ExecutorLost, Job, plan_job
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.routing import RETRY_S, RoutingExecutor, open_executor
from shale_compactor.worker.settings import WorkerSettings
from tests.unit.compactor.harness import ManualClock
from tests.unit.compactor.values import entry, manifest, spec, sst, tree

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Named:
    """An executor whose output names it."""

    def __init__(self, ms: int) -> None:
        self.output = sst(ms)

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        return (self.output,)


@pytest.mark.parametrize(("min_bytes", "goes"), [(301, "local"), (300, "remote"), (1, "remote")])
async def test_jobs_go_where_their_size_suits(min_bytes: int, goes: str) -> None:
    """Jobs of at least the limit go to the large executor, by the estimate of schedulers."""
    job = plan_job(entry(500, spec(l0=(3, 2, 1), to=1)), manifest(tree(l0=(3, 2, 1))))
    assert job.input_bytes == 300
    executors = {"local": Named(1), "remote": Named(2)}
    chosen = RoutingExecutor(
        executors["local"], executors["remote"], Env.system(), min_bytes=min_bytes, on_lost=lambda _: None
    )
    progress = JobProgress(retention_min_seq=job.manifest.recent_snapshot_min_seq)
    assert await chosen.run(job, progress) == (executors[goes].output,)


class Losing:
    """A remote executor that fails in the middle of a job while ``is_lost``."""

    def __init__(self) -> None:
        self.is_lost = True
        self.asked = 0

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        self.asked += 1
        if not progress.is_planned:
            progress.plan([EVERYTHING])
        progress.add(0, sst(7))
        if self.is_lost:
            raise ExecutorLost("its process is gone")
        return progress.outputs()


class GoesOn:
    """An executor that completes what another executor began."""

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        if not progress.is_planned:
            progress.plan([EVERYTHING])
        progress.add(0, sst(8))
        return progress.outputs()


async def test_a_lost_executor_is_replaced_and_tried_again() -> None:
    """The local executor completes the job after its finished part, and takes further jobs until the pause is over."""
    job = plan_job(entry(500, spec(l0=(3, 2, 1), to=1)), manifest(tree(l0=(3, 2, 1))))
    remote, clock, said = Losing(), ManualClock(), list[ExecutorLost]()
    env = Env(clock, random.Random(1), InlineCpu())
    chosen = RoutingExecutor(GoesOn(), remote, env, min_bytes=1, on_lost=said.append)

    async def ids() -> list[int]:
        progress = JobProgress(retention_min_seq=job.manifest.recent_snapshot_min_seq)
        return [each.id.ms for each in await chosen.run(job, progress)]

    assert await ids() == [7, 8]
    assert await ids() == [8]
    assert (remote.asked, [str(error) for error in said]) == (1, ["its process is gone"])
    clock.advance(RETRY_S)
    assert await ids() == [7, 8]
    assert (remote.asked, len(said)) == (2, 1), "an outage is told once"
    clock.advance(RETRY_S)
    remote.is_lost = False
    assert await ids() == [7]
    remote.is_lost = True
    assert await ids() == [7, 8]
    assert len(said) == 2


def process(executor: str) -> Any:
    """Return the arguments of a daemon that is about to open its executor."""
    settings = load_settings(WorkerSettings, ["--url", "memory:///db", "--set", f"spark.executor={executor}"]).settings
    return SimpleNamespace(
        memory=ProcessMemory(),
        settings=settings,
        store=MemoryStore(),
        root="db",
        env=Env.system(),
        metrics=Metrics(),
        location=settings.database.location(),
        log=get_logger("worker"),
    )


@pytest.fixture
def no_registered_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide all registered executors, as if their package were not installed."""
    monkeypatch.setattr(plugins, "entry_points", lambda **_: ())


@pytest.mark.usefixtures("no_registered_executor")
@pytest.mark.parametrize(("executor", "said"), [("local", []), ("auto", ["executor.unavailable"])])
async def test_jobs_stay_here_where_there_is_no_other_executor(
    executor: str, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A local compaction is better than none; a required executor that is missing is an error."""
    caplog.set_level("INFO", "shale")
    async with open_executor(process(executor)) as opened:
        assert isinstance(opened, Executor)
    assert [record.msg["event"] for record in caplog.records if isinstance(record.msg, dict)] == said


@pytest.mark.usefixtures("no_registered_executor")
async def test_an_executor_that_is_asked_for_must_be_there() -> None:
    """Otherwise a worker would take jobs that are too large for it."""
    with pytest.raises(InvalidRequestError, match="executor is called 'spark'"):
        async with open_executor(process("spark")):
            pass
