"""A compactor: a coordinator and, by default, a worker in the same process."""

from dataclasses import field
from functools import partial

import anyio

from shale.concurrency.first_error import first_error
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import InvalidDbState, LatestRecordMissing, UnavailableError
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import require_not_destroyed
from shale.protocol.options import ProtocolOptions
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale_compactor.coordinator.coordinator import Coordinator
from shale_compactor.coordinator.live_coordinator import require_no_live_coordinator
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.coordinator.view_sizes import ViewSizes
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.job import JobExecutor
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.transforms import NO_TRANSFORMS, Transforms
from shale_compactor.runtime import CompactorRuntime
from shale_compactor.worker.options import WorkerOptions, check_heartbeats
from shale_compactor.worker.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorOptions:
    """Options of one compactor.

    Args:
        protocol: options for versioned files, boundaries and epochs.
        embedded_worker: run a worker in this process; off if all workers are separate processes.
        take_over: start even if another coordinator seems to run, which is then fenced.
        release_timeout_s: time limit for releasing the leadership at the end.
    """

    coordinator: CoordinatorOptions = field(default_factory=CoordinatorOptions)
    worker: WorkerOptions = field(default_factory=WorkerOptions)
    executor: ExecutorOptions = field(default_factory=ExecutorOptions)
    protocol: ProtocolOptions = field(default_factory=lambda: ProtocolOptions(component="compactor"))
    embedded_worker: bool = True
    take_over: bool = False
    release_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        check_heartbeats(self.worker, self.coordinator.worker_heartbeat_timeout_s)


class Compactor:
    """Use ``start``, then ``run`` until cancelled or fenced."""

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        env: Env,
        options: CompactorOptions,
        metrics: Metrics | None = None,
        *,
        transforms: Transforms = NO_TRANSFORMS,
        executor: JobExecutor | None = None,
    ) -> None:
        """Create a compactor; no request is made yet.  ``executor`` replaces the local one and its transforms."""
        metrics = metrics if metrics is not None else Metrics()
        self._env = env
        self._options = options
        self._require_alive = partial(require_not_destroyed, store, root)
        self._manifests = ManifestStore(store, root, env, metrics, options.protocol)
        self._compactions = CompactionsStore(store, root, env, metrics, options.protocol)
        sizes = ViewSizes(store, root, options.executor.sst.transformer)
        runtime = CompactorRuntime(
            require_alive=self._require_alive,
            view_sizes=sizes,
            worker_id=str(env.ids.ulid()) if options.embedded_worker else "",
        )
        self.coordinator = Coordinator(
            self._manifests,
            self._compactions,
            env,
            options.coordinator,
            metrics,
            runtime=runtime,
        )
        self.worker: Worker | None = None
        if options.embedded_worker:
            self.worker = Worker(
                self._manifests,
                self._compactions,
                executor or Executor(store, root, env, options.executor, transforms=transforms, metrics=metrics),
                env,
                options.worker,
                metrics=metrics,
                runtime=runtime,
            )

    def reconfigure(self, options: CompactorOptions) -> None:
        """Apply options that may change while running: policy, number of jobs, heartbeats.

        The heartbeat timeout is applied together with the interval, which was checked against it.
        """
        self.coordinator.reconfigure(options.coordinator)
        if self.worker is not None:
            self.worker.reconfigure(options.worker)

    async def start(self) -> None:
        """Claim the compactor epoch.

        Raises:
            LatestRecordMissing: there is no database yet, or it is not complete.
            InvalidDbState: it is being destroyed.
            LiveCoordinator: another coordinator is running, and ``take_over`` is off.
            FencedError: another coordinator started at the same time and claimed a higher epoch.
            CorruptionError: the manifest or the compactions are corrupt; nothing was written.
        """
        latest = await self._manifests.read_latest()
        await self._require_alive()
        if not latest.value.initialized:
            raise LatestRecordMissing("the database is still being built")
        # A corrupt file must be found before the epoch is claimed: a running coordinator then goes on.
        await self._compactions.try_read_latest()
        if not self._options.take_over:
            await require_no_live_coordinator(latest.value, self._compactions, self._env, self._options.coordinator)
        await self.coordinator.start()

    async def run(self) -> None:
        """Run coordinator and worker until cancelled; then release claims and leadership.

        Raises:
            FencedError: another coordinator has taken over.
        """
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.coordinator.run, name="coordinator")
                if self.worker is not None:
                    tasks.start_soon(self.worker.run, name="worker")
        except BaseExceptionGroup as group:
            raise first_error(group) from group
        except anyio.get_cancelled_exc_class():
            await self.release_leadership()
            raise

    async def run_until_idle(self) -> None:
        """Run coordinator and worker while there is work, then release all claims; the leadership stays.

        Raises:
            FencedError: another coordinator has taken over.
        """
        try:
            async with anyio.create_task_group() as tasks:
                if self.worker is not None:
                    tasks.start_soon(self.worker.run, name="worker")
                await self.coordinator.run_until_idle()
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise first_error(group) from group

    async def release_leadership(self) -> None:
        """Release the leadership for the next coordinator; skipped if the database is being destroyed."""
        with anyio.move_on_after(self._options.release_timeout_s, shield=True):
            try:
                await self._require_alive()
                await self.coordinator.release_leadership()
            except (UnavailableError, InvalidDbState):
                return  # the next coordinator then waits until this one's last writes are old enough
