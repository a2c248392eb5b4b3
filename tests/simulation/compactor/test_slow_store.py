"""Heartbeats stay on time with a store that takes two seconds per request.

Source: docs/reference/protocol.md 6.9.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import anyio
import pytest

from shale.compaction.entries import with_entries
from shale.env import Env
from shale.format.compactions import decode_compactions
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.store.retry import RetryingStore
from shale.testing.mutation_log import Mutation
from shale.testing.simulation import SimProcess, Simulation
from shale.types import EVERYTHING, Compaction, CompactionStatus, Sst, SstInfo, WorkerClaim
from shale_compactor.compactor import Compactor
from shale_compactor.execution.job import Job, JobExecutor
from shale_compactor.execution.progress import JobProgress
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.worker import Worker
from tests.simulation.compactor.lsm import OPTIONS, ROOT
from tests.unit.compactor.values import manifest, spec, tree

T = TypeVar("T")
REQUEST_S = 2.0
JOB_S = 600.0
SST_S = 7.0
INTERVAL_S = WorkerOptions().heartbeat_interval_s
TIMEOUT_S = OPTIONS.coordinator.worker_heartbeat_timeout_s


class DelayedStore:
    """A store that takes one second for a request and one second for its response."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found) or name.startswith("_"):
            return found
        if name == "list_pages":
            return self._slow_pages

        async def slow(*args: Any, **options: Any) -> Any:
            await anyio.sleep(REQUEST_S / 2)
            try:
                return await found(*args, **options)
            finally:
                await anyio.sleep(REQUEST_S / 2)

        return slow

    async def _slow_pages(self, prefix: str, **options: Any) -> Any:
        await anyio.sleep(REQUEST_S)
        async for page in self._store.list_pages(prefix, **options):
            yield page


class LongJob:
    """A job that finishes an SST at intervals for ten minutes."""

    job_s = JOB_S
    sst_s = SST_S

    def __init__(self, process: SimProcess) -> None:
        self._env = process.env

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        if not progress.is_planned:
            progress.plan([EVERYTHING])
        for _ in range(int(self.job_s / self.sst_s)):
            await anyio.sleep(self.sst_s)
            info = SstInfo(first_entry=b"a", last_entry=b"a", index_offset=job.input_bytes)
            progress.add(0, Sst(id=self._env.ids.ulid(at_least_ms=job.id.ms), info=info))
        return progress.outputs()


class StuckCpu:
    """A CPU pool whose threads are all busy for ever."""

    async def run(self, work: Callable[[], T]) -> T:
        await anyio.sleep_forever()
        return work()


class StuckJob:
    """A job that waits for a CPU thread."""

    def __init__(self, process: SimProcess) -> None:
        self._cpu = process.env.cpu

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        progress.plan([EVERYTHING])
        await self._cpu.run(lambda: job)
        return progress.outputs()


async def worker(process: SimProcess, *, options: WorkerOptions, job: Callable[[SimProcess], JobExecutor]) -> None:
    process.env = Env(process.clock, process.rng, StuckCpu())
    store = RetryingStore(DelayedStore(process.connection), process.env)  # type: ignore[arg-type]
    protocol = ProtocolOptions(component="worker")
    manifests = ManifestStore(store, ROOT, process.env, process.metrics, protocol)
    compactions = CompactionsStore(store, ROOT, process.env, process.metrics, protocol)
    await Worker(manifests, compactions, job(process), process.env, options, metrics=process.metrics).run()


async def stopping_worker(process: SimProcess) -> None:
    """Stop in the middle of a job, as a daemon does after SIGTERM."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(worker, process, options=WorkerOptions(), job=LongJob))
        await anyio.sleep(150)
        tasks.cancel_scope.cancel()


async def coordinator(process: SimProcess) -> None:
    store = RetryingStore(DelayedStore(process.connection), process.env)  # type: ignore[arg-type]
    options = replace(OPTIONS, embedded_worker=False)
    whole = Compactor(store, ROOT, process.env, options, process.metrics)
    await whole.start()
    await whole.run()


def versions_of(sim: Simulation) -> list[Mutation]:
    return [each for each in sim.history.of("/compactions/") if each.data and each.key.endswith(".compactions")]


def heartbeats(sim: Simulation) -> Iterator[tuple[float, str]]:
    """Return when the store accepted a version with a new heartbeat of a running job, and of which job."""
    before: dict[str, WorkerClaim | None] = {}
    for mutation in versions_of(sim):
        for entry in decode_compactions(mutation.data, path=mutation.key).entries:
            if entry.status is CompactionStatus.RUNNING and before.get(str(entry.id)) != entry.worker:
                before[str(entry.id)] = entry.worker
                yield mutation.time_s, str(entry.id)


def gaps(sim: Simulation) -> list[float]:
    beats = [*heartbeats(sim)]
    jobs = {job for _, job in beats}
    return [b - a for job in jobs for a, b in pairwise([at for at, of in beats if of == job])]


def reclaims(sim: Simulation) -> int:
    versions = [decode_compactions(each.data, path=each.key) for each in versions_of(sim)]
    steps = ((a.get(entry.id), entry) for a, b in pairwise(versions) for entry in b.entries)
    running, scheduled = CompactionStatus.RUNNING, CompactionStatus.SCHEDULED
    return sum(before is not None and (before.status, after.status) == (running, scheduled) for before, after in steps)


async def create(process: SimProcess, *, jobs: int) -> None:
    """Create one segment per job, each with two runs and a request to merge them."""
    segments = {f"s{number}": tree(runs=(2 * number + 1, 2 * number)) for number in range(jobs)}
    specs = [spec(runs=(2 * number + 1, 2 * number), to=2 * number, segment=b"s%d" % number) for number in range(jobs)]
    protocol = ProtocolOptions(component="admin")
    manifests = ManifestStore(process.store, ROOT, process.env, process.metrics, protocol)
    await manifests.create_new(manifest(**segments))
    stored = await CompactionsStore(process.store, ROOT, process.env, process.metrics, protocol).load_or_create()
    ids = process.env.ids
    entries = [Compaction(id=ids.ulid(), spec=each) for each in specs]
    await stored.apply(lambda current: with_entries(current.value, entries) if not current.value.entries else None)


def run(job: Callable[[SimProcess], JobExecutor], *, workers: int, options: WorkerOptions) -> Simulation:
    """Run this number of jobs, each on its own worker, for ten minutes."""
    with Simulation(1) as sim:
        sim.start(create, "admin", jobs=workers)
        sim.run(seconds=10)
        sim.start(coordinator, "boss", role="compactor")
        for number in range(workers):
            sim.start(worker, f"slow{number}", role="worker", options=options, job=job)
        sim.run(seconds=JOB_S)
    return sim


@pytest.mark.parametrize("persist_every_sst", [False, True])
def test_the_heartbeats_of_a_worker_keep_their_pace(persist_every_sst: bool) -> None:
    sim = run(LongJob, workers=1, options=WorkerOptions(persist_every_sst=persist_every_sst))
    found = gaps(sim)
    assert len(found) > (JOB_S - 80) / SST_S if persist_every_sst else len(found) > (JOB_S - 60) / INTERVAL_S
    assert max(found) < TIMEOUT_S / 2
    assert reclaims(sim) == 0


@pytest.mark.slow
def test_two_workers_do_not_crowd_each_other_out() -> None:
    """Each write of one worker is a conflict for the other, and a conflict costs six seconds."""
    sim = run(LongJob, workers=2, options=WorkerOptions(persist_every_sst=True, max_concurrent_compactions=1))
    assert len({job for _, job in heartbeats(sim)}) == 2
    assert max(gaps(sim)) < TIMEOUT_S
    assert reclaims(sim) == 0


@pytest.mark.slow
def test_conflicts_on_a_fast_store_do_not_delay_publishing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpublished work is repeated after a crash, so only a slow store delays publishing."""
    monkeypatch.setattr("tests.simulation.compactor.test_slow_store.REQUEST_S", 0.02)
    sim = run(LongJob, workers=2, options=WorkerOptions(persist_every_sst=True, max_concurrent_compactions=1))
    found = gaps(sim)
    assert len(found) > 2 * (JOB_S - 20) / SST_S
    assert max(found) < SST_S + 0.5


def test_a_stopping_worker_has_time_to_give_its_jobs_back() -> None:
    """It releases its jobs in one write, so the next worker does not wait for the timeout."""
    with Simulation(1) as sim:
        sim.start(create, "admin", jobs=1)
        sim.run(seconds=10)
        sim.start(coordinator, "boss", role="compactor")
        stopped = sim.start(stopping_worker, "slow", role="worker")
        sim.run(seconds=200)
    assert stopped.has_ended
    last = decode_compactions(versions_of(sim)[-1].data or b"", path="")
    assert [entry.status for entry in last.entries] == [CompactionStatus.SCHEDULED]
    assert [sub.range for sub in last.entries[0].ctx.subcompactions] == [EVERYTHING]  # type: ignore[union-attr]


def test_merges_cannot_hold_heartbeats_up() -> None:
    """Heartbeats continue even if every CPU thread is busy for ever."""
    sim = run(StuckJob, workers=1, options=WorkerOptions())
    assert len(gaps(sim)) > (JOB_S - 60) / INTERVAL_S
    assert max(gaps(sim)) < TIMEOUT_S / 2
