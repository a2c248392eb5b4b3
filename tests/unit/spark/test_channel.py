"""Attempts and their driver over real sockets, without Spark: who writes, who stops, and what is left."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from shale.engine.where import Where
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import CorruptionError, InvalidRequestError, MergeOperatorMissing
from shale.sst.options import SstOptions
from shale.store.local import LocalStore
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
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.instruments import ExecutorMetrics
from shale_compactor.execution.job import Job, plan_job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import TransformNames
from shale_spark.compaction.chain import Chain
from shale_spark.compaction.channel import GONE, Channel
from shale_spark.compaction.executor import ProgressFeed
from shale_spark.compaction.frames import Accepted, Failed, Hello, Over, Refused, Report, Start, Wire
from shale_spark.compaction.link import AttemptLost
from shale_spark.compaction.plan import TaskPlan, cut_job
from shale_spark.compaction.task import attempt
from shale_spark.task_errors import encode_error
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
class House:
    """A driver with two ranges of one job over real SSTs in a directory."""

    store: LocalStore
    job: Job
    url: str
    silence_s: float = 30.0
    progress: JobProgress = field(init=False)
    chains: list[Chain] = field(init=False)
    channel: Channel = field(init=False)
    port: int = 0

    def __post_init__(self) -> None:
        context = CompactionContext(
            subcompactions=tuple(Subcompaction(range=keys) for keys in RANGES), retention_min_seq=Seq(2**40)
        )
        self.progress = JobProgress(retention_min_seq=Seq(0), resumed=context)
        self.chains = [Chain(), Chain()]
        feed = ProgressFeed(self.progress, ExecutorMetrics(Metrics()))
        self.channel = Channel(self.chains, "secret", feed, silence_s=self.silence_s)

    async def attempt(self, index: int, number: int, names: TransformNames | None = None) -> None:
        plan = TaskPlan(
            where=Where(self.url, "db"),
            job=cut_job(self.job, RANGES[index]),
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
    async def wire(self, index: int, number: int, token: str = "secret") -> AsyncIterator[Wire]:
        """A connection that has said hello."""
        stream = await anyio.connect_tcp("127.0.0.1", self.port)
        async with stream:
            wire = Wire(stream)
            await wire.send(Hello(token, index, number))
            yield wire


async def make_house(tmp_path: Path, tasks: TaskGroup, *, operands: bool = False, silence_s: float = 30.0) -> House:
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
    house = House(store, plan_job(entry(500, spec), Manifest(tree=tree)), f"file://{tmp_path}", silence_s)
    house.port = await tasks.start(house.channel.serve, "127.0.0.1")
    return house


async def expected(house: House) -> list[Entry]:
    """What a local executor makes of the job."""
    outputs = await Executor(house.store, "db", ENV, OPTIONS).run(house.job, JobProgress(retention_min_seq=Seq(2**40)))
    return await read_ssts(house.store, "db", ENV, outputs)


async def written(house: House) -> list[Entry]:
    return await read_ssts(house.store, "db", ENV, house.progress.outputs())


async def test_a_host_of_another_machine_is_named_with_its_setting() -> None:
    channel = Channel([], "secret", ProgressFeed(JobProgress(retention_min_seq=Seq(0)), ExecutorMetrics(Metrics())))
    with pytest.raises(InvalidRequestError, match=r"spark\.event_host: .* 192\.0\.2\.1, and this process cannot"):
        await channel.serve("192.0.2.1")


async def test_tasks_write_what_a_local_executor_writes(tmp_path: Path) -> None:
    """Each range by its own attempt; the driver has the chains and the numbers."""
    async with anyio.create_task_group() as tasks:
        house = await make_house(tmp_path, tasks)
        await house.attempt(1, 8)
        await house.attempt(0, 7)
        assert [chain.is_done for chain in house.chains] == [True, True]
        assert await written(house) == await expected(house)
        assert house.progress.outputs() == tuple(each for chain in house.chains for each in chain.ssts)
        assert house.progress.read_bytes > 0
        assert house.progress.merged_bytes > 0
        assert await house.channel.wait_until_gone(5)
        tasks.cancel_scope.cancel()


async def test_an_attempt_goes_on_behind_the_last_finished_sst(tmp_path: Path) -> None:
    """Of a lost one, that is; what that one had begun is merged again, and no row is missing or there twice."""
    async with anyio.create_task_group() as tasks:
        house = await make_house(tmp_path, tasks)
        with anyio.CancelScope() as lost:
            house.progress._on_sst = lambda _sst: lost.cancel() if len(house.chains[0].ssts) == 2 else None
            await house.attempt(0, 1)
        assert lost.cancelled_caught
        assert await house.channel.wait_until_gone(5)
        before = [*house.chains[0].ssts]
        assert len(before) >= 2
        house.progress._on_sst = lambda _sst: None
        await house.attempt(0, 2)
        await house.attempt(1, 3)
        assert house.chains[0].ssts[: len(before)] == before
        assert await written(house) == await expected(house)
        tasks.cancel_scope.cancel()


async def test_a_second_attempt_at_a_done_range_does_nothing(tmp_path: Path) -> None:
    """Its executor was lost after the last report and before Spark heard of the result."""
    async with anyio.create_task_group() as tasks:
        house = await make_house(tmp_path, tasks)
        await house.attempt(0, 1)
        before = [*house.chains[0].ssts]
        await house.attempt(0, 2)
        assert house.chains[0].ssts == before
        async with house.wire(0, 3) as wire:
            assert await wire.receive() == Over()
        tasks.cancel_scope.cancel()


async def test_the_newest_attempt_owns_the_range(tmp_path: Path) -> None:
    """The older one's next report is refused, and it is kept waiting rather than failing."""
    async with anyio.create_task_group() as tasks:
        house = await make_house(tmp_path, tasks)
        async with house.wire(0, 1) as old:
            assert await old.receive() == Start(0, None)
            await old.send(Report(0, (sst(1),)))
            assert await old.receive() == Accepted()
            async with house.wire(0, 2) as new:
                assert await new.receive() == Start(1, sst(1))
                await old.send(Report(1, (sst(2),)))
                assert await old.receive() == Refused()
                await new.send(Report(1, ()))
                assert await new.receive() == Accepted()
                with anyio.move_on_after(0.1) as waited:
                    await old.receive()
                assert waited.cancelled_caught
        assert house.progress.outputs() == (sst(1),)
        tasks.cancel_scope.cancel()


async def test_a_refused_attempt_is_let_go_when_its_successor_is_lost(tmp_path: Path) -> None:
    """Otherwise Spark would see one that runs and start no other: nothing would ever happen again."""
    async with anyio.create_task_group() as tasks:
        house = await make_house(tmp_path, tasks)
        async with house.wire(0, 5) as new:
            assert await new.receive() == Start(0, None)
            lost: list[BaseException] = []

            async def old() -> None:
                with pytest.raises(AttemptLost) as raised:
                    await house.attempt(0, 4)
                lost.append(raised.value)

            async with anyio.create_task_group() as attempts:
                attempts.start_soon(old)
                while not house.channel._refused[0]:
                    await anyio.lowlevel.checkpoint()
                assert not lost
                await new.aclose()
        assert lost
        await house.attempt(0, 6)
        assert house.chains[0].is_done
        tasks.cancel_scope.cancel()


async def test_silence_costs_the_range(tmp_path: Path) -> None:
    """A machine that stands still closes no connection."""
    async with anyio.create_task_group() as tasks:
        house = await make_house(tmp_path, tasks, silence_s=0.05)
        async with house.wire(0, 1) as wire:
            assert await wire.receive() == Start(0, None)
            with pytest.raises(GONE):
                await wire.receive()
        assert house.chains[0].owner is None
        tasks.cancel_scope.cancel()


async def test_a_task_without_its_driver_fails(tmp_path: Path) -> None:
    """Spark's executors end with the driver; until they do, nothing is written for nobody."""
    async with anyio.create_task_group() as tasks:
        house = await make_house(tmp_path, tasks)
        house.progress._on_sst = lambda _sst: tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), pytest.raises(AttemptLost):
            await house.attempt(0, 1)
    with pytest.raises(AttemptLost, match="cannot be reached"):
        await house.attempt(0, 2)


async def test_after_the_end_nobody_goes_on(tmp_path: Path) -> None:
    """A job that was taken back must stand still before somebody else may claim it."""
    async with anyio.create_task_group() as tasks:
        house = await make_house(tmp_path, tasks)
        async with house.wire(0, 1) as wire:
            assert await wire.receive() == Start(0, None)
            house.channel.refuse_all()
            await wire.send(Report(0, (sst(1),)))
            assert await wire.receive() == Refused()
            async with house.wire(1, 2) as late:
                assert await late.receive() == Refused()
            assert not await house.channel.wait_until_gone(0.05)
        assert await house.channel.wait_until_gone(5)
        assert house.progress.outputs() == ()
        tasks.cancel_scope.cancel()


async def test_what_no_attempt_can_avoid_ends_the_job_at_once(tmp_path: Path) -> None:
    """The driver hears of the error itself, and no other range is waited for."""
    async with anyio.create_task_group() as tasks:
        house = await make_house(tmp_path, tasks, operands=True)
        tasks.start_soon(house.attempt, 0, 1, TransformNames(merge_passthrough=False))
        with anyio.fail_after(60):
            await house.channel.failed.wait()
        assert isinstance(house.channel.failure, MergeOperatorMissing)
        tasks.cancel_scope.cancel()


async def test_the_trouble_of_an_attempt_that_was_replaced_is_its_own(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        house = await make_house(tmp_path, tasks)
        async with house.wire(0, 7) as old, house.wire(0, 8) as new:
            assert isinstance(await old.receive(), Start)
            assert isinstance(await new.receive(), Start)
            await old.send(Failed(encode_error(CorruptionError("this machine's memory"))))
            assert isinstance(await old.receive(), Refused)
            await new.send(Report(0, ()))
            assert isinstance(await new.receive(), Accepted)
        assert house.channel.failure is None
        tasks.cancel_scope.cancel()


async def test_an_owner_that_lost_count_fails_the_job(tmp_path: Path) -> None:
    """Going on would lose rows or write them twice."""
    async with anyio.create_task_group() as tasks:
        house = await make_house(tmp_path, tasks)
        async with house.wire(0, 1) as wire:
            await wire.receive()
            await wire.send(Report(3, (sst(1),)))
            await house.channel.failed.wait()
        assert isinstance(house.channel.failure, CorruptionError)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("index", [0, 2, -1])
async def test_strangers_hear_nothing(tmp_path: Path, index: int) -> None:
    """Without the token of the job, or with a range that it does not have."""
    async with anyio.create_task_group() as tasks:
        house = await make_house(tmp_path, tasks)
        async with house.wire(index, 1, token="secret" if index else "guess") as wire:
            with pytest.raises(GONE):
                await wire.receive()
        assert all(chain.owner is None for chain in house.chains)
        async with await anyio.connect_tcp("127.0.0.1", house.port) as stream:
            await stream.send(b"GET / HTTP/1.1\r\n\r\n")
            with pytest.raises(GONE):
                await stream.receive()
        tasks.cancel_scope.cancel()


def test_the_types_of_outputs() -> None:
    """The feed hands on what the chain has: the same values."""
    progress = JobProgress(retention_min_seq=Seq(0))
    progress.plan(RANGES)
    feed = ProgressFeed(progress, ExecutorMetrics(Metrics()))
    outputs: list[Sst] = [sst(1), sst(2)]
    feed.reported(1, Report(0, tuple(outputs), 10, 20))
    feed.reported(1, Report(2, (), 0, 7, refused=3, why_refused="the first"))
    feed.reported(0, Report(0, (), refused=1, why_refused="another"))
    feed.started(1)
    assert progress.outputs() == tuple(outputs)
    assert (progress.read_bytes, progress.merged_bytes, progress.repeated_bytes) == (10, 27, 7)
    assert (progress.refused_count, progress.why_refused) == (4, "the first")
