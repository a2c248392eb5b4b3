"""Attempts and their driver over real sockets, without Spark: which one writes, which stops, and the resulting SSTs."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from shale.engine.location import DatabaseLocation
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import CorruptionError, InvalidRequestError, MergeOperatorMissing
from shale.sst.options import SstOptions
from shale.store.local_store.adapter import LocalStore
from shale.telemetry.metrics import Metrics
from shale.types import (
    FLAG_MERGE,
    CompactionContext,
    Entry,
    KeyRange,
    Manifest,
    RunId,
    Seq,
    Sst,
    Subcompaction,
    TieredSpec,
    Tree,
)
from shale_compactor.execution.executor import Executor, ExecutorMetrics
from shale_compactor.execution.job import Job, plan_job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import TransformNames
from shale_spark.compaction.driver_client import AttemptLost
from shale_spark.compaction.executor import ProgressRecorder
from shale_spark.compaction.messages import (
    AttemptRefused,
    MessageStream,
    RangeDone,
    RangeStart,
    ReportAccepted,
    TaskFailed,
    TaskHello,
    TaskReport,
)
from shale_spark.compaction.range_output import RangeOutput
from shale_spark.compaction.task import attempt
from shale_spark.compaction.task_plan import TaskPlan, trim_job
from shale_spark.compaction.task_server import GONE, TaskServer
from shale_spark.errors import encode_error
from shale_spark.tasks import TaskInfo
from tests.unit.compactor.ssts import put, read_ssts, write_view
from tests.unit.compactor.values import entry, sst, ulid

pytestmark = pytest.mark.anyio
ENV = Env(SystemClock(), random.Random(1), InlineCpu())
OPTIONS = ExecutorOptions(sst=SstOptions(block_size_bytes=256), max_sst_size_bytes=2048)
MIDDLE = b"key%06d" % 150
RANGES = (KeyRange.half_open(None, MIDDLE), KeyRange.half_open(MIDDLE, None))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Harness:
    """A driver with two ranges of one job over real SSTs in a directory."""

    store: LocalStore
    job: Job
    url: str
    silence_s: float = 30.0
    progress: JobProgress = field(init=False)
    chains: list[RangeOutput] = field(init=False)
    channel: TaskServer = field(init=False)
    port: int = 0

    def __post_init__(self) -> None:
        context = CompactionContext(
            subcompactions=tuple(Subcompaction(range=keys) for keys in RANGES), retention_min_seq=Seq(2**40)
        )
        self.progress = JobProgress(retention_min_seq=Seq(0), resumed=context)
        self.chains = [RangeOutput(), RangeOutput()]
        feed = ProgressRecorder(self.progress, ExecutorMetrics(Metrics()))
        self.channel = TaskServer(self.chains, "secret", feed, silence_s=self.silence_s)

    async def attempt(self, index: int, number: int, names: TransformNames | None = None) -> None:
        plan = TaskPlan(
            where=DatabaseLocation(self.url, "db"),
            job=trim_job(self.job, RANGES[index]),
            index=index,
            range=RANGES[index],
            retention_min_seq=Seq(2**40),
            options=OPTIONS,
            transforms=names or TransformNames(),
            driver=("127.0.0.1", self.port),
            token="secret",
        )
        await attempt(plan, TaskInfo(index, 0, 0, number), ENV)

    @asynccontextmanager
    async def wire(self, index: int, number: int, token: str = "secret") -> AsyncIterator[MessageStream]:
        """Return a connection after its handshake."""
        stream = await anyio.connect_tcp("127.0.0.1", self.port)
        async with stream:
            wire = MessageStream(stream)
            await wire.send(TaskHello(token, index, number))
            yield wire


async def make_harness(tmp_path: Path, tasks: TaskGroup, *, operands: bool = False, silence_s: float = 30.0) -> Harness:
    store = LocalStore(str(tmp_path))
    old = [put(b"key%06d" % i, i + 1, b"old" * 10) for i in range(300)]
    new = [put(b"key%06d" % i, i + 1000, b"new" * 10) for i in range(0, 300, 2)]
    if operands:
        new.append(Entry(b"key000001", b"+1", 5000, FLAG_MERGE))
    views = [
        await write_view(store, "db", ulid(100 + i), rows, block_size_bytes=256) for i, rows in enumerate([old, new])
    ]
    tree = Tree(l0=tuple(views[::-1]))
    spec = TieredSpec(l0_view_ids=tuple(view.id for view in tree.l0), destination=RunId(1))
    harness = Harness(store, plan_job(entry(500, spec), Manifest(tree=tree)), f"file://{tmp_path}", silence_s)
    harness.port = await tasks.start(harness.channel.serve, "127.0.0.1")
    return harness


async def expected(harness: Harness) -> list[Entry]:
    """Return the outputs of a local executor for the job."""
    outputs = await Executor(harness.store, "db", ENV, OPTIONS).run(
        harness.job, JobProgress(retention_min_seq=Seq(2**40))
    )
    return await read_ssts(harness.store, "db", ENV, outputs)


async def written(harness: Harness) -> list[Entry]:
    return await read_ssts(harness.store, "db", ENV, harness.progress.outputs())


async def test_a_host_of_another_machine_is_named_with_its_setting() -> None:
    channel = TaskServer(
        [], "secret", ProgressRecorder(JobProgress(retention_min_seq=Seq(0)), ExecutorMetrics(Metrics()))
    )
    with pytest.raises(InvalidRequestError, match=r"spark\.event_host: .* 192\.0\.2\.1, and this process cannot"):
        await channel.serve("192.0.2.1")


async def test_tasks_write_what_a_local_executor_writes(tmp_path: Path) -> None:
    """One attempt per range; the driver has the chains and the counters."""
    async with anyio.create_task_group() as tasks:
        harness = await make_harness(tmp_path, tasks)
        await harness.attempt(1, 8)
        await harness.attempt(0, 7)
        assert [chain.is_done for chain in harness.chains] == [True, True]
        assert await written(harness) == await expected(harness)
        assert harness.progress.outputs() == tuple(each for chain in harness.chains for each in chain.ssts)
        assert harness.progress.read_bytes > 0
        assert harness.progress.merged_bytes > 0
        assert await harness.channel.wait_until_gone(5)
        tasks.cancel_scope.cancel()


async def test_an_attempt_resumes_after_the_last_finished_sst(tmp_path: Path) -> None:
    """The unfinished SST of the lost attempt is merged again, and no row is missing or duplicated."""
    async with anyio.create_task_group() as tasks:
        harness = await make_harness(tmp_path, tasks)
        with anyio.CancelScope() as lost:
            harness.progress.on_sst = lambda _sst: lost.cancel() if len(harness.chains[0].ssts) == 2 else None
            await harness.attempt(0, 1)
        assert lost.cancelled_caught
        assert await harness.channel.wait_until_gone(5)
        before = [*harness.chains[0].ssts]
        assert len(before) >= 2
        harness.progress.on_sst = lambda _sst: None
        await harness.attempt(0, 2)
        await harness.attempt(1, 3)
        assert harness.chains[0].ssts[: len(before)] == before
        assert await written(harness) == await expected(harness)
        tasks.cancel_scope.cancel()


async def test_a_second_attempt_at_a_done_range_does_nothing(tmp_path: Path) -> None:
    """Its executor was lost after the last report and before Spark received the result."""
    async with anyio.create_task_group() as tasks:
        harness = await make_harness(tmp_path, tasks)
        await harness.attempt(0, 1)
        before = [*harness.chains[0].ssts]
        await harness.attempt(0, 2)
        assert harness.chains[0].ssts == before
        async with harness.wire(0, 3) as wire:
            assert await wire.receive() == RangeDone()
        tasks.cancel_scope.cancel()


async def test_the_newest_attempt_owns_the_range(tmp_path: Path) -> None:
    """The older one's next report is refused, and it waits instead of failing."""
    async with anyio.create_task_group() as tasks:
        harness = await make_harness(tmp_path, tasks)
        async with harness.wire(0, 1) as old:
            assert await old.receive() == RangeStart(0, None)
            await old.send(TaskReport(0, (sst(1),)))
            assert await old.receive() == ReportAccepted()
            async with harness.wire(0, 2) as new:
                assert await new.receive() == RangeStart(1, sst(1))
                await old.send(TaskReport(1, (sst(2),)))
                assert await old.receive() == AttemptRefused()
                await new.send(TaskReport(1, ()))
                assert await new.receive() == ReportAccepted()
                with anyio.move_on_after(0.1) as waited:
                    await old.receive()
                assert waited.cancelled_caught
        assert harness.progress.outputs() == (sst(1),)
        tasks.cancel_scope.cancel()


async def test_a_refused_attempt_is_let_go_when_its_successor_is_lost(tmp_path: Path) -> None:
    """Otherwise Spark would see a running attempt and never start another."""
    async with anyio.create_task_group() as tasks:
        harness = await make_harness(tmp_path, tasks)
        async with harness.wire(0, 5) as new:
            assert await new.receive() == RangeStart(0, None)
            lost: list[BaseException] = []

            async def old() -> None:
                with pytest.raises(AttemptLost) as raised:
                    await harness.attempt(0, 4)
                lost.append(raised.value)

            async with anyio.create_task_group() as attempts:
                attempts.start_soon(old)
                while not harness.channel._refused[0]:
                    await anyio.lowlevel.checkpoint()
                assert not lost
                await new.aclose()
        assert lost
        await harness.attempt(0, 6)
        assert harness.chains[0].is_done
        tasks.cancel_scope.cancel()


async def test_silence_costs_the_range(tmp_path: Path) -> None:
    """A frozen machine closes no connection."""
    async with anyio.create_task_group() as tasks:
        harness = await make_harness(tmp_path, tasks, silence_s=0.05)
        async with harness.wire(0, 1) as wire:
            assert await wire.receive() == RangeStart(0, None)
            with pytest.raises(GONE):
                await wire.receive()
        assert harness.chains[0].owner is None
        tasks.cancel_scope.cancel()


async def test_a_task_without_its_driver_fails(tmp_path: Path) -> None:
    """Spark's executors end with the driver; until then they write nothing."""
    async with anyio.create_task_group() as tasks:
        harness = await make_harness(tmp_path, tasks)
        harness.progress.on_sst = lambda _sst: tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), pytest.raises(AttemptLost):
            await harness.attempt(0, 1)
    with pytest.raises(AttemptLost, match="cannot be reached"):
        await harness.attempt(0, 2)


async def test_after_the_end_no_task_continues(tmp_path: Path) -> None:
    """A reclaimed job must stop before another worker may claim it."""
    async with anyio.create_task_group() as tasks:
        harness = await make_harness(tmp_path, tasks)
        async with harness.wire(0, 1) as wire:
            assert await wire.receive() == RangeStart(0, None)
            harness.channel.close_to_attempts()
            await wire.send(TaskReport(0, (sst(1),)))
            assert await wire.receive() == AttemptRefused()
            async with harness.wire(1, 2) as late:
                assert await late.receive() == AttemptRefused()
            assert not await harness.channel.wait_until_gone(0.05)
        assert await harness.channel.wait_until_gone(5)
        assert harness.progress.outputs() == ()
        tasks.cancel_scope.cancel()


async def test_what_no_attempt_can_avoid_ends_the_job_at_once(tmp_path: Path) -> None:
    """The driver receives the error itself, and waits for no other range."""
    async with anyio.create_task_group() as tasks:
        harness = await make_harness(tmp_path, tasks, operands=True)
        tasks.start_soon(harness.attempt, 0, 1, TransformNames(merge_passthrough=False))
        with anyio.fail_after(60):
            await harness.channel.failed.wait()
        assert isinstance(harness.channel.failure, MergeOperatorMissing)
        tasks.cancel_scope.cancel()


async def test_the_trouble_of_an_attempt_that_was_replaced_is_its_own(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        harness = await make_harness(tmp_path, tasks)
        async with harness.wire(0, 7) as old, harness.wire(0, 8) as new:
            assert isinstance(await old.receive(), RangeStart)
            assert isinstance(await new.receive(), RangeStart)
            await old.send(TaskFailed(encode_error(CorruptionError("this machine's memory"))))
            assert isinstance(await old.receive(), AttemptRefused)
            await new.send(TaskReport(0, ()))
            assert isinstance(await new.receive(), ReportAccepted)
        assert harness.channel.failure is None
        tasks.cancel_scope.cancel()


async def test_an_owner_that_lost_count_fails_the_job(tmp_path: Path) -> None:
    """It would lose rows or write them twice."""
    async with anyio.create_task_group() as tasks:
        harness = await make_harness(tmp_path, tasks)
        async with harness.wire(0, 1) as wire:
            await wire.receive()
            await wire.send(TaskReport(3, (sst(1),)))
            await harness.channel.failed.wait()
        assert isinstance(harness.channel.failure, CorruptionError)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("index", [0, 2, -1])
async def test_clients_without_a_valid_token_get_no_response(tmp_path: Path, index: int) -> None:
    """Without the token of the job, or for an unknown range, a client gets no response."""
    async with anyio.create_task_group() as tasks:
        harness = await make_harness(tmp_path, tasks)
        async with harness.wire(index, 1, token="secret" if index else "guess") as wire:
            with pytest.raises(GONE):
                await wire.receive()
        assert all(chain.owner is None for chain in harness.chains)
        async with await anyio.connect_tcp("127.0.0.1", harness.port) as stream:
            await stream.send(b"GET / HTTP/1.1\r\n\r\n")
            with pytest.raises(GONE):
                await stream.receive()
        tasks.cancel_scope.cancel()


def test_the_types_of_outputs() -> None:
    """The feed returns the same values as the chain."""
    progress = JobProgress(retention_min_seq=Seq(0))
    progress.plan(RANGES)
    feed = ProgressRecorder(progress, ExecutorMetrics(Metrics()))
    outputs: list[Sst] = [sst(1), sst(2)]
    feed.reported(1, TaskReport(0, tuple(outputs), 10, 20))
    feed.reported(1, TaskReport(2, (), 0, 7, refused=3, why_refused="the first"))
    feed.reported(0, TaskReport(0, (), refused=1, why_refused="another"))
    feed.started(1)
    assert progress.outputs() == tuple(outputs)
    assert (progress.read_bytes, progress.merged_bytes, progress.rework_bytes) == (10, 27, 7)
    assert (progress.refused_count, progress.why_refused) == (4, "the first")
