"""Settings of the compactor daemon.

The settings of compaction are under ``compactor_options`` with SlateDB's names and units, so that a SlateDB
configuration file can be used unchanged.
"""

from socket import gethostname
from typing import ClassVar

from pydantic import Field, model_validator

from shale.core.memory_plan import MemoryShare
from shale.errors import InvalidRequestError
from shale.merge_operators import resolve_operator
from shale.protocol.options import ProtocolOptions
from shale.service.config.engine_options import options_from
from shale.service.config.scheduler_section import SchedulerSection
from shale.service.config.section import Section
from shale.service.config.sections import (
    Bytes,
    CompressionCodec,
    Filters,
    FilterSection,
    PositiveSeconds,
    Seconds,
    Texts,
)
from shale.service.config.settings import BoundaryFilesSettings, ProbeMaxStaleness
from shale.service.config.spark_section import SparkSection
from shale.sst.options import BLOCK_SIZE_MAX, SstOptions
from shale.types import Compression
from shale_compactor.compactor import CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.transforms import NO_TRANSFORMS, TransformNames, Transforms
from shale_compactor.worker.options import WorkerOptions

_MEMORY = (
    MemoryShare(
        name="compactor_options.worker.memory_bytes",
        default=ExecutorOptions().memory_bytes,
        least=16 << 20,
        weight=1,
    ),
)
COORDINATOR, WORKER, EXECUTOR, PROTOCOL = CoordinatorOptions(), WorkerOptions(), ExecutorOptions(), ProtocolOptions()


class WorkerSection(Section):
    """Settings of the worker."""

    max_concurrent_compactions: int = Field(
        default=WORKER.max_concurrent_compactions,
        ge=1,
        description="Concurrent jobs; the coordinator limits all workers together, a worker itself.",
    )
    compactions_poll_interval: PositiveSeconds = Field(
        default=WORKER.compactions_poll_interval_s, description="Interval between polls for scheduled jobs."
    )
    heartbeat_interval: PositiveSeconds = Field(
        default=WORKER.heartbeat_interval_s,
        description="Interval between heartbeats; at most half of worker_heartbeat_timeout.",
    )
    persist_every_sst: bool = Field(
        default=WORKER.persist_every_sst, description="Publish progress after each output SST."
    )
    persist_interval: Seconds = Field(
        default=WORKER.persist_interval_s, ge=0, description="Minimum time between two such writes."
    )
    max_job_attempts: int | None = Field(
        default=WORKER.max_job_attempts,
        ge=1,
        description="Attempts of all workers before a job is Failed; None: no limit.",
    )
    max_sst_size: Bytes = Field(default=EXECUTOR.max_sst_size_bytes, gt=0, description="Target size of an output SST.")
    max_subcompactions: int = Field(
        default=EXECUTOR.max_subcompactions, ge=1, description="Key ranges of one job that are merged concurrently."
    )
    max_fetch_tasks: int = Field(
        default=4, ge=1, description="SlateDB's, ignored: read buffers are derived from memory_bytes."
    )
    bytes_to_fetch: Bytes = Field(default=2 * 1024 * 1024, gt=0, description="SlateDB's, ignored: see max_fetch_tasks.")
    min_filter_keys: int = Field(
        default=EXECUTOR.sst.min_filter_keys, ge=0, description="An SST with fewer keys gets no filter."
    )
    memory_bytes: Bytes = Field(
        default=EXECUTOR.memory_bytes,
        gt=0,
        description="Memory for buffers and key hashes of all running jobs.",
    )
    merge_operator: str | None = Field(
        default=None, description="Registered name or module:attribute; must be the same in all processes."
    )
    merge_passthrough: bool = Field(
        default=True, description="Without an operator, keep merge operands unmerged; off: jobs with operands fail."
    )
    compaction_filters: Texts = Field(
        default=(), description="Registered names or module:attribute; applied in this order."
    )
    name: str = Field(
        default_factory=gethostname, description="The metric label worker; should be stable over restarts."
    )

    def transform_names(self) -> TransformNames:
        """Return the names of the transforms, for loading them in another process."""
        return TransformNames(
            merge_operator=self.merge_operator,
            merge_passthrough=self.merge_passthrough,
            compaction_filters=self.compaction_filters,
        )

    def transforms(self, section: str) -> Transforms:
        """Import the configured transforms; ``section`` is the settings path for errors.

        Raises:
            InvalidRequestError: a name is unknown, or its object cannot be used.
        """
        try:
            resolve_operator(self.merge_operator)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{section}.merge_operator: {error}") from error
        try:
            return self.transform_names().load()
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{section}: {error}") from error


class CompactorOptionsSection(Section):
    """SlateDB's ``compactor_options``."""

    poll_interval: PositiveSeconds = Field(
        default=COORDINATOR.poll_interval_s, description="Interval between scheduling rounds of the coordinator."
    )
    commit_compacted_interval: PositiveSeconds = Field(
        default=COORDINATOR.commit_compacted_interval_s,
        description="Interval between checks for results of workers to commit.",
    )
    manifest_update_timeout: PositiveSeconds = Field(
        default=PROTOCOL.manifest_update_timeout_s,
        description="Time limit of one manifest update, retries included.",
    )
    max_concurrent_compactions: int = Field(
        default=COORDINATOR.max_concurrent_compactions,
        ge=1,
        description="Concurrent jobs; the coordinator limits all workers together, a worker itself.",
    )
    worker_heartbeat_timeout: PositiveSeconds = Field(
        default=COORDINATOR.worker_heartbeat_timeout_s,
        description="A worker without a heartbeat for this time loses its jobs.",
    )
    checkpoint_lifetime: Seconds = Field(
        default=COORDINATOR.checkpoint_lifetime_s,
        ge=2,
        description="Lifetime of the checkpoint that protects the inputs of a committed job.",
    )
    enable_trivial_move: bool = Field(
        default=COORDINATOR.enable_trivial_move,
        description="Move SSTs that do not overlap to a run without rewriting them.",
    )
    scheduler_options: SchedulerSection = SchedulerSection()
    worker: WorkerSection | None = WorkerSection()


_RELOADED_OF_COORDINATORS = ("max_concurrent_compactions", "scheduler_options")
_RELOADED_OF_WORKERS = (
    *("max_concurrent_compactions", "compactions_poll_interval", "heartbeat_interval"),
    *("persist_every_sst", "persist_interval", "max_job_attempts"),
)


class MergingSettings(BoundaryFilesSettings):
    """Settings that the compactor and a separate worker share."""

    RELOADED: ClassVar[tuple[str, ...]] = (
        *BoundaryFilesSettings.RELOADED,
        *(f"compactor_options.{name}" for name in ("worker_heartbeat_timeout", *_RELOADED_OF_COORDINATORS)),
        *(f"compactor_options.worker.{name}" for name in _RELOADED_OF_WORKERS),
    )

    compactor_options: CompactorOptionsSection = CompactorOptionsSection()
    spark: SparkSection = SparkSection()
    compression_codec: CompressionCodec = "none"
    filters: Filters = (FilterSection(),)
    block_size_bytes: Bytes = Field(
        default=EXECUTOR.sst.block_size_bytes,
        gt=0,
        le=BLOCK_SIZE_MAX,
        description="Target size of a block of an SST.",
    )
    probe_max_staleness: ProbeMaxStaleness = PROTOCOL.probe_max_staleness_s

    @property
    def _worker(self) -> WorkerSection:
        return self.compactor_options.worker or WorkerSection()

    def uses_wal(self) -> bool:
        """Return ``False``: compaction never reads the WAL."""
        return False

    def memory_shares(self) -> tuple[MemoryShare, ...]:
        """Return the setting that bounds the buffers of compactions, if they run here."""
        return _MEMORY if self.executes_here() else ()

    def executes_here(self) -> bool:
        """Whether compactions run in this process."""
        return True

    def worker_options(self) -> WorkerOptions:
        """Return the options of the worker."""
        return options_from(WorkerOptions, self._worker)

    def executor_options(self) -> ExecutorOptions:
        """Return the options of the executor."""
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
        """Import the merge operator and the filters.

        Raises:
            InvalidRequestError: one of them cannot be used; the message names the setting.
        """
        worker = self.compactor_options.worker
        return worker.transforms("compactor_options.worker") if worker is not None else NO_TRANSFORMS

    def transform_names(self) -> TransformNames:
        """Return the names of merge operator and filters, for other processes."""
        return self._worker.transform_names()

    def protocol(self) -> ProtocolOptions:
        """Return the options for versioned files, boundaries and epochs."""
        return ProtocolOptions(
            component=self.ROLE,
            probe_max_staleness_s=self.probe_max_staleness,
            missing_boundary=self.missing_boundary,
            boundary_files_enabled=self.boundary_files_enabled,
            manifest_update_timeout_s=self.compactor_options.manifest_update_timeout,
            manifest_write_version=self.manifest.write_version,
        )


class CompactorSettings(MergingSettings):
    """The compactor: schedules and commits compactions and, by default, executes them."""

    ROLE: ClassVar[str] = "compactor"
    FLAGS: ClassVar[tuple[str, ...]] = ("take_over", "embedded_worker")

    embedded_worker: bool = Field(
        default=True, description="Run a worker in this process; off if all workers are separate."
    )
    take_over: bool = Field(default=False, description="Start even if another coordinator seems to run.")

    def executes_here(self) -> bool:
        """Whether compactions run in this process: there is an embedded worker, and it is not a driver of Spark."""
        return self.embedded_worker and self.compactor_options.worker is not None and self.spark.executor == "local"

    @model_validator(mode="after")
    def _is_consistent(self) -> "CompactorSettings":
        try:
            self.options()
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self

    def options(self) -> CompactorOptions:
        """Return the options of the compactor.

        Raises:
            InvalidRequestError: the settings contradict each other.
        """
        section = self.compactor_options
        return CompactorOptions(
            coordinator=options_from(CoordinatorOptions, section, scheduler=section.scheduler_options.scheduler()),
            worker=self.worker_options(),
            executor=self.executor_options(),
            protocol=self.protocol(),
            embedded_worker=self.embedded_worker and section.worker is not None,
            take_over=self.take_over,
        )
