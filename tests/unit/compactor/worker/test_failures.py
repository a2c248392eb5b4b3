"""The failure of one job affects no other: damaged progress, foreign exceptions, cancellation.

Source: docs/reference/protocol.md 6.9.
"""

from dataclasses import replace

import anyio
import pytest

from shale.compaction.cancel import with_cancelled
from shale.errors import CorruptionError, MergeOperatorMissing, ProtocolPanic, UnavailableError
from shale.telemetry.metrics import Metrics
from shale.types import CompactionContext, KeyRange, Seq, Subcompaction
from tests.unit.compactor.harness import Harness, eventually
from tests.unit.compactor.values import S, entry, manifest, spec, sst, statuses, tree, ulid

pytestmark = pytest.mark.anyio
JOB = entry(9, spec((2, 1), to=0), S.SCHEDULED)
OTHER = entry(10, spec((4, 3), to=1, segment=b"a"), S.SCHEDULED)
DAMAGED = CompactionContext(
    subcompactions=(Subcompaction(range=KeyRange.half_open(b"k", None), output_ssts=()),), retention_min_seq=Seq(0)
)
NOT_ALL_KEYS = "the ranges of the persisted progress do not cover all keys"


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def scheduled(*entries):
    harness = await Harness(manifest(tree((2, 1)), a=tree((4, 3)))).create()
    await harness.compactions.load_or_create()
    await harness.edit(*entries)
    return harness


class Picky:
    """An executor that fails the job with this destination, with the chosen error."""

    def __init__(self, executor, error, destination=0):
        self.executor = executor
        self.error = error
        self.destination = destination
        self.runs = 0

    async def run(self, job, progress):
        self.runs += 1
        if job.spec.destination == self.destination:
            raise self.error
        return await self.executor.run(job, progress)


async def run_until(worker, condition):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await eventually(condition)
        tasks.cancel_scope.cancel()


def errors_of(metrics):
    (family,) = [each for each in metrics.registry.collect() if each.name == "slatedb_compaction_errors"]
    return {
        (sample.labels["error_type"], sample.labels["retryable"]): sample.value
        for sample in family.samples
        if sample.name.endswith("_total") and sample.value
    }


@pytest.mark.parametrize(
    ("error", "counted", "left"),
    [
        pytest.param(ZeroDivisionError("in a filter"), ("internal", "false"), S.FAILED, id="a filter"),
        pytest.param(MemoryError(), ("memory", "true"), S.SCHEDULED, id="memory"),
        pytest.param(UnavailableError("gave up"), ("network", "true"), S.SCHEDULED, id="store"),
        pytest.param(TimeoutError("slow"), ("timeout", "true"), S.SCHEDULED, id="timeout"),
        pytest.param(CorruptionError("bad block"), ("corruption", "false"), S.FAILED, id="corruption"),
        pytest.param(MergeOperatorMissing("no operator"), ("validation", "false"), S.SCHEDULED, id="operator"),
        pytest.param(AssertionError("ours"), ("internal", "false"), S.FAILED, id="assertion"),
    ],
)
async def test_whatever_a_job_raises_fails_that_job_alone(error, counted, left):
    """An error that will not change ends the job; after another one, it is tried again."""
    harness = await scheduled(JOB, OTHER)
    metrics = Metrics()
    worker = harness.worker(metrics=metrics, executor=Picky(harness.executor, error), name="w")

    async def is_settled():
        return statuses(await harness.stored()) == {9: left, 10: S.COMPACTED}

    await run_until(worker, is_settled)
    assert errors_of(metrics) == {counted: 1}
    assert await worker.claim() == [], "it waits before it is tried again"
    value = metrics.registry.get_sample_value
    assert value("slatedb_compactor_running", {"db": "", "worker": "w"}) == 0


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param(spec(to=0), id="no sources"),
        pytest.param(spec((1, 2), to=0), id="in another order"),
        pytest.param(spec((2, 2), to=0), id="twice"),
        pytest.param(spec((2, 1), to=0, segment=b"gone"), id="no such segment"),
    ],
)
async def test_entries_that_cannot_be_planned_are_given_back(strange):
    """Shale's coordinators do not schedule them; the other job continues."""
    harness = await scheduled(entry(9, strange, S.SCHEDULED), OTHER)
    worker = harness.worker()
    assert [job.plan.id for job in await worker.claim()] == [ulid(10)]
    assert statuses(await harness.stored()) == {9: S.SCHEDULED, 10: S.RUNNING}


async def test_a_broken_invariant_ends_the_worker_all_the_same():
    harness = await scheduled(JOB)
    worker = harness.worker(executor=Picky(harness.executor, ProtocolPanic("as asked")))
    with pytest.raises(BaseExceptionGroup) as group:
        await worker.run()
    assert group.value.subgroup(ProtocolPanic) is not None
    assert statuses(await harness.stored()) == {9: S.SCHEDULED}


async def test_damaged_progress_ends_its_job():
    """No worker can continue from it, and a new compaction of the same sources starts without it."""
    harness = await scheduled(replace(JOB, ctx=DAMAGED), OTHER)
    metrics = Metrics()
    worker = harness.worker(metrics=metrics)

    async def is_settled():
        return statuses(await harness.stored()) == {9: S.FAILED, 10: S.COMPACTED}

    await run_until(worker, is_settled)
    record = await harness.compactions.records.read(ulid(9))
    assert (record.status, record.error) == (S.FAILED, f"DamagedProgress: {NOT_ALL_KEYS}")
    assert errors_of(metrics) == {("corruption", "false"): 1}
    labels = {"db": "", "resource": "compactions"}
    assert metrics.registry.get_sample_value("slatedb_corruption_total", labels) == 1
    assert [job.spec.destination for job in harness.executor.jobs] == [1]


async def test_progress_changed_by_another_process_fails_the_job():
    harness = await scheduled(JOB, OTHER)
    harness.executor.gate = anyio.Event()
    metrics = Metrics()
    worker = harness.worker(metrics=metrics)

    async def both_run():
        return len(harness.executor.jobs) == 2

    async def is_released():
        return statuses(await harness.stored())[9] is S.SCHEDULED

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await eventually(both_run)
        mine = (await harness.stored()).get(ulid(9))
        foreign = CompactionContext(
            subcompactions=(Subcompaction(range=KeyRange(), output_ssts=(sst(77),)),), retention_min_seq=Seq(0)
        )
        await harness.edit(replace(mine, ctx=foreign))
        await worker.client.heartbeat()
        await eventually(is_released)
        assert (await harness.stored()).get(ulid(9)).ctx == foreign, "what is stored is not ours to change"
        assert set(worker.jobs) == {ulid(10)}, "the other job goes on"
        tasks.cancel_scope.cancel()
    assert errors_of(metrics) == {("corruption", "true"): 1}


@pytest.mark.parametrize("when", ["heartbeat", "finish"])
async def test_a_cancelled_job_stops_and_counts_neither_way(when):
    harness = await scheduled(JOB)
    harness.executor.gate = anyio.Event()
    metrics = Metrics()
    worker = harness.worker(metrics=metrics, name="w")

    async def runs():
        return bool(harness.executor.jobs)

    async def has_stopped():
        return worker.is_idle

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await eventually(runs)
        stored = await harness.compactions.load()
        await stored.apply(lambda current: with_cancelled(current.value, ulid(9)))
        if when == "heartbeat":
            await worker.client.heartbeat()
        else:
            harness.executor.gate.set()
        await eventually(has_stopped)
        tasks.cancel_scope.cancel()
    (entry_,) = (await harness.stored()).entries
    assert (entry_.status, entry_.output_ssts, entry_.worker) == (S.FAILED, (), None)
    value = metrics.registry.get_sample_value
    assert value("slatedb_compactor_running", {"db": "", "worker": "w"}) == 0
    assert errors_of(metrics) == {}
    for result in ("completed", "failed"):
        labels = {"db": "", "size_class": "lt_64m", "result": result}
        assert value("slatedb_compaction_duration_seconds_count", labels) == 0


async def test_the_last_ssts_are_published_when_a_job_is_given_back():
    """The next worker resumes after them, however old the last heartbeat is."""
    harness = await scheduled(JOB)
    worker = harness.worker()
    (job,) = await worker.claim()
    await harness.executor.run(job.plan, job.progress)
    assert await worker.client.release_all() == [ulid(9)]
    (free,) = (await harness.stored()).entries
    assert (free.status, free.worker) == (S.SCHEDULED, None)
    assert [each.id for sub in free.ctx.subcompactions for each in sub.output_ssts] == [
        each.id for each in job.progress.outputs()
    ]


async def test_a_claim_whose_answer_never_came_is_given_back(monkeypatch):
    """The worker was stopped during its claim: it owns an entry that it has not seen."""
    harness = await scheduled(JOB)
    worker = harness.worker()
    put = harness.store.put

    async def deaf(key, *args, **options):
        await put(key, *args, **options)
        await anyio.sleep_forever()

    async def is_claimed():
        return statuses(await harness.stored()) == {9: S.RUNNING}

    async with anyio.create_task_group() as tasks:
        monkeypatch.setattr(harness.store, "put", deaf)
        tasks.start_soon(worker.run)
        await eventually(is_claimed)
        monkeypatch.setattr(harness.store, "put", put)
        tasks.cancel_scope.cancel()
    assert statuses(await harness.stored()) == {9: S.SCHEDULED}


async def test_every_write_of_a_worker_is_a_heartbeat_for_all_its_jobs():
    harness = await scheduled(JOB)
    worker = harness.worker()
    await worker.claim()
    harness.clock.advance(7)
    await harness.edit(OTHER)
    assert len(await worker.claim()) == 1
    stamps = {each.id.ms: each.worker.last_heartbeat_ms for each in (await harness.stored()).entries}
    assert stamps == {9: harness.clock.ms, 10: harness.clock.ms}
