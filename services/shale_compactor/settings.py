"""The settings of the compactor; ``options()`` is what its parts take.

The engine's settings stand under ``compactor_options`` with SlateDB's names and units, so that a file written for
SlateDB is read as it is.
"""

from socket import gethostname
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from shale.errors import InvalidRequestError
from shale.merge_operators import operator_of
from shale.protocol.options import MissingBoundary, ProtocolOptions
from shale.service.scheduler_section import SchedulerSection
from shale.service.sections import Bytes, FilterSection, PositiveSeconds, Seconds, Section, Texts
from shale.service.settings import DaemonSettings
from shale.service.spark_section import SparkSection
from shale.sst.options import BLOCK_SIZE_MAX, SstOptions
from shale.types import Compression
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.transforms import NO_TRANSFORMS, TransformNames, Transforms
from shale_compactor.process import CompactorOptions
from shale_compactor.worker.options import WorkerOptions

COORDINATOR, WORKER, EXECUTOR, PROTOCOL = CoordinatorOptions(), WorkerOptions(), ExecutorOptions(), ProtocolOptions()


class WorkerSection(Section):
    """The worker inside this process."""

    max_concurrent_compactions: int = Field(
        default=WORKER.max_concurrent_compactions,
        ge=1,
        description="Jobs at a time; the coordinator has such a limit for all workers, a worker for itself.",
    )
    compactions_poll_interval: PositiveSeconds = Field(
        default=WORKER.compactions_poll_interval_s, description="How often scheduled jobs are looked for."
    )
    heartbeat_interval: PositiveSeconds = Field(
        default=WORKER.heartbeat_interval_s,
        description="How often a claim is renewed; at most half of worker_heartbeat_timeout.",
    )
    persist_every_sst: bool = Field(
        default=WORKER.persist_every_sst, description="Publish progress after each output SST."
    )
    persist_interval: Seconds = Field(
        default=WORKER.persist_interval_s, ge=0, description="Least time between two writes of persist_every_sst."
    )
    max_job_attempts: int | None = Field(default=WORKER.max_job_attempts, ge=1, description="None: try for ever.")
    max_sst_size: Bytes = Field(
        default=EXECUTOR.max_sst_size_bytes, gt=0, description="The size at which an output SST ends."
    )
    max_subcompactions: int = Field(
        default=EXECUTOR.max_subcompactions, ge=1, description="Ranges of one job that are merged beside each other."
    )
    max_fetch_tasks: int = Field(default=4, ge=1, description="SlateDB's; here read buffers follow from memory_bytes.")
    bytes_to_fetch: Bytes = Field(default=2 * 1024 * 1024, gt=0, description="SlateDB's; see max_fetch_tasks.")
    min_filter_keys: int = Field(
        default=EXECUTOR.sst.min_filter_keys, ge=0, description="SSTs with fewer keys get no filter."
    )
    memory_bytes: Bytes = Field(
        default=EXECUTOR.memory_bytes,
        gt=0,
        description="Buffers and key hashes of all running jobs together.",
    )
    merge_operator: str | None = Field(
        default=None, description="Registered name or module:attribute; every process must use the same one."
    )
    merge_passthrough: bool = Field(
        default=True, description="Without an operator, keep merge operands as they are; off: jobs that meet one fail."
    )
    compaction_filters: Texts = Field(
        default=(), description="Registered names or module:attribute; each filter sees what the one before left."
    )
    name: str = Field(default_factory=gethostname, description="The label worker of metrics; stable over restarts.")

    def transform_names(self) -> TransformNames:
        """What this section names, for whoever loads it elsewhere."""
        return TransformNames(
            merge_operator=self.merge_operator,
            merge_passthrough=self.merge_passthrough,
            compaction_filters=self.compaction_filters,
        )

    def transforms(self, section: str) -> Transforms:
        """Import what this section names; ``section`` is where it stands.

        Raises:
            InvalidRequestError: a name is unknown, or what it stands for cannot be used.
        """
        try:
            operator_of(self.merge_operator)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{section}.merge_operator: {error}") from error
        try:
            return self.transform_names().load()
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{section}: {error}") from error


class CompactorOptionsSection(Section):
    """SlateDB's ``compactor_options``."""

    poll_interval: PositiveSeconds = Field(
        default=COORDINATOR.poll_interval_s, description="How often the coordinator looks at manifest and jobs."
    )
    commit_compacted_interval: PositiveSeconds = Field(
        default=COORDINATOR.commit_compacted_interval_s,
        description="How often results of workers are looked for and committed.",
    )
    manifest_update_timeout: PositiveSeconds = Field(
        default=PROTOCOL.manifest_update_timeout_s,
        description="How long one update of the manifest may take with all its repetitions.",
    )
    max_concurrent_compactions: int = Field(
        default=COORDINATOR.max_concurrent_compactions,
        ge=1,
        description="Jobs at a time; the coordinator has such a limit for all workers, a worker for itself.",
    )
    worker_heartbeat_timeout: PositiveSeconds = Field(
        default=COORDINATOR.worker_heartbeat_timeout_s,
        description="A worker that was silent for so long loses its jobs.",
    )
    checkpoint_lifetime: Seconds = Field(
        default=COORDINATOR.checkpoint_lifetime_s,
        ge=2,
        description="How long the checkpoint holds that protects sources of jobs.",
    )
    enable_trivial_move: bool = Field(
        default=COORDINATOR.enable_trivial_move,
        description="Let an SST without overlap change its place without being rewritten.",
    )
    scheduler_options: SchedulerSection = SchedulerSection()
    worker: WorkerSection | None = WorkerSection()


class MergingSettings(DaemonSettings):
    """What a process needs that executes compactions, and the compactor and a separate worker therefore share."""

    compactor_options: CompactorOptionsSection = CompactorOptionsSection()
    spark: SparkSection = SparkSection()
    compression_codec: Literal["none", "snappy", "zlib", "lz4", "zstd"] = Field(
        default="none", description="Of the blocks of new SSTs."
    )
    filters: tuple[FilterSection, ...] = Field(default=(FilterSection(),), description="The filters of each SST.")
    block_size_bytes: Bytes = Field(
        default=EXECUTOR.sst.block_size_bytes,
        gt=0,
        le=BLOCK_SIZE_MAX,
        description="The size at which a block of an SST is full.",
    )
    probe_max_staleness: PositiveSeconds = Field(
        default=PROTOCOL.probe_max_staleness_s,
        description="What was known of the latest manifest is trusted for so long; below every min_age.",
    )
    missing_boundary: MissingBoundary = Field(
        default=PROTOCOL.missing_boundary,
        description="What a missing boundary file means: somebody deleted it (panic), or there never was one (zero).",
    )
    boundary_files_enabled: bool = Field(
        default=PROTOCOL.boundary_files_enabled, description="Off only for stores without conditional updates."
    )
    boundary_files_off_acknowledged: bool = Field(
        default=False, description="Required to switch boundary files off: a stale coordinator may then commit."
    )

    @model_validator(mode="after")
    def _means_it(self) -> Self:
        if not self.boundary_files_enabled and not self.boundary_files_off_acknowledged:
            raise ValueError("boundary_files_enabled = false needs boundary_files_off_acknowledged = true")
        return self

    @property
    def _worker(self) -> WorkerSection:
        return self.compactor_options.worker or WorkerSection()

    def uses_wal(self) -> bool:
        """What is compacted has left the WAL."""
        return False

    def worker_options(self) -> WorkerOptions:
        """How jobs are found and kept."""
        worker = self._worker
        return WorkerOptions(
            name=worker.name,
            max_concurrent_compactions=worker.max_concurrent_compactions,
            compactions_poll_interval_s=worker.compactions_poll_interval,
            heartbeat_interval_s=worker.heartbeat_interval,
            persist_every_sst=worker.persist_every_sst,
            persist_interval_s=worker.persist_interval,
            max_job_attempts=worker.max_job_attempts,
        )

    def executor_options(self) -> ExecutorOptions:
        """How one job is carried out."""
        worker = self._worker
        return ExecutorOptions(
            sst=SstOptions(
                block_size_bytes=self.block_size_bytes,
                compression=Compression[self.compression_codec.upper()],
                min_filter_keys=worker.min_filter_keys,
                filter_policies=tuple(each.policy() for each in self.filters),
                transformer=self.block_transformer(),
            ),
            max_sst_size_bytes=worker.max_sst_size,
            max_subcompactions=worker.max_subcompactions,
            max_active_ranges=self.cpu_threads,
            memory_bytes=worker.memory_bytes,
        )

    def transforms(self) -> Transforms:
        """The merge operator and the filters, imported.

        Raises:
            InvalidRequestError: one of them cannot be used; names the setting.
        """
        worker = self.compactor_options.worker
        return worker.transforms("compactor_options.worker") if worker is not None else NO_TRANSFORMS

    def transform_names(self) -> TransformNames:
        """The same by their names, for processes elsewhere."""
        return self._worker.transform_names()

    def protocol(self) -> ProtocolOptions:
        """The options of sequenced files, boundaries and epochs."""
        return ProtocolOptions(
            component=self.ROLE,
            probe_max_staleness_s=self.probe_max_staleness,
            missing_boundary=self.missing_boundary,
            boundary_files_enabled=self.boundary_files_enabled,
            manifest_update_timeout_s=self.compactor_options.manifest_update_timeout,
        )


class CompactorSettings(MergingSettings):
    """The compactor: schedules and commits compactions and, unless told otherwise, executes them."""

    ROLE: ClassVar[str] = "compactor"
    FLAGS: ClassVar[tuple[str, ...]] = ("take_over", "embedded_worker")

    embedded_worker: bool = Field(default=True, description="Execute jobs here; off where separate workers do it.")
    take_over: bool = Field(default=False, description="Start although another coordinator seems to be alive.")

    @model_validator(mode="after")
    def _is_consistent(self) -> "CompactorSettings":
        try:
            self.options()
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self

    def options(self) -> CompactorOptions:
        """The options of coordinator, worker and executor.

        Raises:
            InvalidRequestError: they contradict each other.
        """
        section = self.compactor_options
        return CompactorOptions(
            coordinator=CoordinatorOptions(
                scheduler=section.scheduler_options.scheduler(),
                max_concurrent_compactions=section.max_concurrent_compactions,
                poll_interval_s=section.poll_interval,
                commit_compacted_interval_s=section.commit_compacted_interval,
                worker_heartbeat_timeout_s=section.worker_heartbeat_timeout,
                checkpoint_lifetime_s=section.checkpoint_lifetime,
                enable_trivial_move=section.enable_trivial_move,
            ),
            worker=self.worker_options(),
            executor=self.executor_options(),
            embedded_worker=self.embedded_worker and section.worker is not None,
            take_over=self.take_over,
        )
