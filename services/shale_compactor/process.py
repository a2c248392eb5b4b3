"""One compactor process: a coordinator and, by default, a worker beside it."""

from dataclasses import dataclass, field
from functools import partial

import anyio

from shale.env import Env
from shale.errors import InvalidDbState, LatestRecordMissing, UnavailableError
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import require_not_destroyed
from shale.protocol.options import ProtocolOptions
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale_compactor.coordinator.coordinator import Coordinator
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.coordinator.takeover import require_no_live_coordinator
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.job import JobExecutor
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.transforms import NO_TRANSFORMS, Transforms
from shale_compactor.first_error import first_error
from shale_compactor.nudge import Nudge
from shale_compactor.worker.options import WorkerOptions, check_heartbeats
from shale_compactor.worker.worker import Worker

_RESIGN_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorOptions:
    """Everything about one compactor process.

    Args:
        embedded_worker: execute jobs here too; off where separate workers do it.
        take_over: start although another coordinator seems to be alive, which it then is not for long.
    """

    coordinator: CoordinatorOptions = field(default_factory=CoordinatorOptions)
    worker: WorkerOptions = field(default_factory=WorkerOptions)
    executor: ExecutorOptions = field(default_factory=ExecutorOptions)
    embedded_worker: bool = True
    take_over: bool = False

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
        protocol: ProtocolOptions | None = None,
        executor: JobExecutor | None = None,
    ) -> None:
        """Make no request yet; ``executor`` replaces the local one and brings transforms of its own."""
        metrics = metrics if metrics is not None else Metrics()
        protocol = protocol if protocol is not None else ProtocolOptions(component="compactor")
        self._env = env
        self._options = options
        self._require_alive = partial(require_not_destroyed, store, root)
        self._manifests = ManifestStore(store, root, env, metrics, protocol)
        self._compactions = CompactionsStore(store, root, env, metrics, protocol)
        jobs_ready, results_ready = Nudge(), Nudge()
        self.coordinator = Coordinator(
            self._manifests,
            self._compactions,
            env,
            options.coordinator,
            metrics,
            require_alive=self._require_alive,
            jobs_ready=jobs_ready,
            results_ready=results_ready,
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
                jobs_ready=jobs_ready,
                results_ready=results_ready,
            )

    def reconfigure(self, options: CompactorOptions) -> None:
        """Take over what may change while running: the policy, how many jobs at once, how workers keep them.

        The timeout goes with the heartbeats, which were checked against it.
        """
        self.coordinator.reconfigure(options.coordinator)
        if self.worker is not None:
            self.worker.reconfigure(options.worker)

    async def start(self) -> None:
        """Take the epoch.

        Raises:
            LatestRecordMissing: there is no database yet, or only half of one.
            InvalidDbState: it is being destroyed.
            LiveCoordinator: somebody else coordinates it, and ``take_over`` is off.
            FencedError: somebody else started at the same time and is ahead.
            CorruptionError: the manifest or the compactions are damaged; nothing was written.
        """
        latest = await self._manifests.read_latest()
        await self._require_alive()
        if not latest.value.initialized:
            raise LatestRecordMissing("the database is still being built")
        # What cannot be read is found before the manifest changes hands, and whoever coordinates goes on.
        await self._compactions.try_read_latest()
        if not self._options.take_over:
            await require_no_live_coordinator(latest.value, self._compactions, self._env, self._options.coordinator)
        await self.coordinator.start()

    async def run(self) -> None:
        """Coordinate and work until cancelled; claims and the epoch are given back on the way out.

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
            await self._resign()
            raise

    async def _resign(self) -> None:
        """Tell whoever comes next that nobody coordinates now; a database that is being destroyed is left alone."""
        with anyio.move_on_after(_RESIGN_TIMEOUT_S, shield=True):
            try:
                await self._require_alive()
                await self.coordinator.resign()
            except (UnavailableError, InvalidDbState):
                return  # the next one then waits until our last signs of life have grown old
