"""A database in memory with a clock that the test moves, and an executor with invented outputs."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial

import anyio

from shale.compaction.entries import with_entries
from shale.concurrency.signal import WakeEvent
from shale.env import Clock, Env, InlineCpu
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import require_not_destroyed
from shale.protocol.versioned import Versioned
from shale.store.memory import MemoryStore
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import EVERYTHING, Compaction, Compactions, Manifest, Sst, SstInfo, Ulid
from shale_compactor.coordinator.coordinator import Coordinator
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.coordinator.state import refresh_state
from shale_compactor.execution.job import Job, JobExecutor
from shale_compactor.execution.progress import JobProgress
from shale_compactor.runtime import CompactorRuntime
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.worker import Worker

START_MS = 1_700_000_000_000


@dataclass
class ManualClock(Clock):
    """A clock that only the test advances."""

    ms: int = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def advance(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@dataclass
class FakeExecutor:
    """An executor that returns one SST per job; it waits at the gate and raises the chosen error, if set."""

    env: Env
    gate: anyio.Event | None = None
    error: Exception | None = None
    jobs: list[Job] = field(default_factory=list)
    cancelled: int = 0

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        self.jobs.append(job)
        if not progress.is_planned:
            progress.plan([EVERYTHING])
        try:
            if self.gate is not None:
                await self.gate.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        info = SstInfo(first_entry=b"a", last_entry=b"z", index_offset=job.input_bytes)
        progress.add(0, Sst(id=self.env.ids.ulid(), info=info))
        return progress.outputs()


class Harness:
    """The stores of one database and the processes on it."""

    def __init__(self, manifest: Manifest | None = None, *, store: type[MemoryStore] = MemoryStore) -> None:
        self.clock = ManualClock()
        self.env = self.new_env(1)
        self.store = store(self.clock)
        self.manifests = ManifestStore(self.store, "db", self.env)
        self.compactions = CompactionsStore(self.store, "db", self.env)
        self.executor = FakeExecutor(self.env)
        self._first = manifest if manifest is not None else Manifest()

    def new_env(self, seed: int) -> Env:
        return Env(self.clock, random.Random(seed), InlineCpu())

    async def create(self) -> "Harness":
        await self.manifests.create_new(self._first)
        return self

    def coordinator(
        self,
        *,
        metrics: Metrics | None = None,
        store: ObjectStore | None = None,
        jobs_ready: WakeEvent | None = None,
        **options: object,
    ) -> Coordinator:
        """Return a coordinator with its own caches, as in another process."""
        env = self.new_env(len(self.executor.jobs) + 10)
        store = store if store is not None else self.store
        return Coordinator(
            ManifestStore(store, "db", env, metrics),
            CompactionsStore(store, "db", env, metrics),
            env,
            CoordinatorOptions(**options),  # type: ignore[arg-type]
            metrics,
            runtime=CompactorRuntime(
                require_alive=partial(require_not_destroyed, store, "db"),
                jobs_ready=jobs_ready if jobs_ready is not None else WakeEvent(),
            ),
        )

    async def started(
        self,
        *,
        metrics: Metrics | None = None,
        store: ObjectStore | None = None,
        jobs_ready: WakeEvent | None = None,
        **options: object,
    ) -> Coordinator:
        coordinator = self.coordinator(metrics=metrics, store=store, jobs_ready=jobs_ready, **options)
        await coordinator.start()
        return coordinator

    def worker(
        self,
        seed: int = 2,
        metrics: Metrics | None = None,
        *,
        executor: JobExecutor | None = None,
        jobs_ready: WakeEvent | None = None,
        only: frozenset[Ulid] | None = None,
        **options: object,
    ) -> Worker:
        env = self.new_env(seed)
        return Worker(
            ManifestStore(self.store, "db", env),
            CompactionsStore(self.store, "db", env),
            executor if executor is not None else self.executor,
            env,
            WorkerOptions(only=only, **options),  # type: ignore[arg-type]
            metrics=metrics,
            runtime=CompactorRuntime(jobs_ready=jobs_ready) if jobs_ready is not None else None,
        )

    async def watch(self, coordinator: Coordinator, seconds: int) -> None:
        """Advance the clock while the coordinator polls every second."""
        for _ in range(seconds):
            self.clock.advance(1)
            await refresh_state(coordinator.view)

    async def manifest(self) -> Manifest:
        return (await self.manifests.read_latest()).value

    async def stored(self) -> Compactions:
        return (await self.compactions.read_latest()).value

    async def claim_and_finish(self) -> None:
        """Let one worker claim the available jobs and finish them before its next poll."""
        worker = self.worker()
        for job in await worker.claim():
            await worker.execute(job)

    async def edit(self, *entries: Compaction) -> None:
        """Write the compactions as an administrator or a foreign worker does."""
        stored = await self.compactions.load()
        await stored.apply(lambda current: with_entries(current.value, entries))

    async def edit_manifest(self, **fields: object) -> None:
        """Write the manifest as a writer or a reader does."""
        stored = await self.manifests.load()

        def change(current: Versioned[Manifest]) -> Manifest:
            return replace(current.value, **fields)  # type: ignore[arg-type]

        await stored.apply(change)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition is true; fail after five seconds."""
    with anyio.fail_after(60):
        while not await condition():  # noqa: ASYNC110 - what is waited for stands in a store
            await anyio.sleep(0.005)
