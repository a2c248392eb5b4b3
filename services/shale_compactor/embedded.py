"""A compactor inside a writer process, for writers with SlateDB's API, which run one by default."""

from collections.abc import Mapping
from typing import Any, Protocol

from shale.compaction.policies.size_tiered import SizeTiered
from shale.errors import InvalidRequestError
from shale.format.sst.filter_policy import BloomPolicy
from shale.iter.merge_operator import MergeOperator
from shale.service.embedded import ServiceContext
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.sst.options import SstOptions
from shale.types import Compression
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.transforms import Transforms
from shale_compactor.worker.options import WorkerOptions


class CompactorContext(ServiceContext, Protocol):
    """The writer's database and the options that its compactor shares."""

    @property
    def merge_operator(self) -> MergeOperator | None:
        """The writer's merge operator."""
        ...

    @property
    def block_size_bytes(self) -> int:
        """Block size of new SSTs in bytes."""
        ...

    @property
    def filter_policies(self) -> tuple[BloomPolicy, ...]:
        """Filters of new SSTs."""
        ...

    @property
    def disk_cache(self) -> DiskCacheOptions | None:
        """The writer's disk cache."""
        ...


async def run(place: CompactorContext, options: Mapping[str, Any]) -> None:
    """Run coordinator and worker until cancelled, or until another compactor takes over.

    Args:
        place: the writer's database.
        options: SlateDB's ``compactor_options``; durations in seconds.

    Raises:
        FencedError: another coordinator has taken over.
        ShaleError: the database cannot be compacted.
    """
    compactor = Compactor(
        place.store,
        place.root,
        place.env,
        _options(place, options),
        place.metrics,
        transforms=Transforms(operator=place.merge_operator, operator_name="the writer's"),
    )
    await compactor.start()
    await compactor.run()


def _options(place: CompactorContext, options: Mapping[str, Any]) -> CompactorOptions:
    worker = options["worker"]
    return CompactorOptions(
        coordinator=CoordinatorOptions(
            scheduler=_scheduler(options["scheduler_options"]),
            max_concurrent_compactions=options["max_concurrent_compactions"],
            poll_interval_s=options["poll_interval"],
            commit_compacted_interval_s=options["commit_compacted_interval"],
            worker_heartbeat_timeout_s=options["worker_heartbeat_timeout"],
            checkpoint_lifetime_s=options["checkpoint_lifetime"],
            enable_trivial_move=options["enable_trivial_move"],
        ),
        worker=WorkerOptions() if worker is None else _worker(worker),
        executor=ExecutorOptions() if worker is None else _executor(place, worker),
        embedded_worker=worker is not None,
        take_over=True,
    )


def _worker(options: Mapping[str, Any]) -> WorkerOptions:
    return WorkerOptions(
        max_concurrent_compactions=options["max_concurrent_compactions"],
        compactions_poll_interval_s=options["compactions_poll_interval"],
        heartbeat_interval_s=options["heartbeat_interval"],
    )


def _executor(place: CompactorContext, options: Mapping[str, Any]) -> ExecutorOptions:
    codec = options["compression_codec"]
    return ExecutorOptions(
        sst=SstOptions(
            block_size_bytes=place.block_size_bytes,
            compression=Compression.NONE if codec is None else Compression[codec.upper()],
            min_filter_keys=options["min_filter_keys"],
            filter_policies=place.filter_policies,
        ),
        max_sst_size_bytes=options["max_sst_size"],
        max_subcompactions=options["max_subcompactions"],
        output_cache=place.disk_cache,
    )


def _scheduler(options: Mapping[str, str]) -> SizeTiered:
    """Return the size-tiered policy for SlateDB's options, which are strings.

    Raises:
        InvalidRequestError: an option is not a number, or is out of range.
    """
    usual = SizeTiered()
    try:
        return SizeTiered(
            min_compaction_sources=int(options.get("min_compaction_sources", usual.min_compaction_sources)),
            max_compaction_sources=int(options.get("max_compaction_sources", usual.max_compaction_sources)),
            include_size_threshold=float(options.get("include_size_threshold", usual.include_size_threshold)),
        )
    except ValueError as error:
        raise InvalidRequestError(f"scheduler_options: {error}") from error
