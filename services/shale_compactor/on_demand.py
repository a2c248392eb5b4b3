"""A compactor in the process of a writer that works while the writer's L0s need it (docs/how-to/embedded-services.md).

It claims the epoch with the first work, so a short program that writes little makes no request for it.  It never
replaces another coordinator, and gives way to one that starts later.
"""

from typing import Protocol

import anyio

from shale.compaction.policies.leveled import Leveled
from shale.engine.embedded.work import L0Work
from shale.errors import FencedError, InvalidDbState
from shale.iter.merge_operator import MergeOperator
from shale.service.embedded import ServiceContext
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.sst.options import SstOptions
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Epoch
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.live_coordinator import LiveCoordinator
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.transforms import Transforms
from shale_compactor.worker.options import WorkerOptions

_LINGER_S = 60.0
"""The leadership is kept for so long after the last job: claiming it again costs four writes."""
_INPUTS_KEPT_S = 60.0
"""How long a commit protects its inputs for readers without a checkpoint.  A daemon keeps them for 15 minutes, but the
directory of a program should not be much larger than its data.  A collector of this process itself keeps them, for as
long as the directory is small."""
_RELEASE_TIMEOUT_S = 0.4
_SPACE_AMPLIFICATION_MAX = 1.15
log = get_logger("compactor")


class OnDemandContext(ServiceContext, Protocol):
    """The writer's database and its options."""

    @property
    def merge_operator(self) -> MergeOperator | None:
        """The writer's merge operator."""
        ...

    @property
    def sst(self) -> SstOptions:
        """The writer's options of new SSTs."""
        ...

    @property
    def l0_sst_size_bytes(self) -> int:
        """Size at which the writer flushes a memtable."""
        ...

    @property
    def disk_cache(self) -> DiskCacheOptions | None:
        """The writer's disk cache."""
        ...

    @property
    def work(self) -> L0Work:
        """Tells when L0s need a compaction."""
        ...

    @property
    def writer_epoch(self) -> Epoch:
        """The writer's epoch."""
        ...

    @property
    def collects(self) -> bool:
        """Whether a collector runs in this process, too."""
        ...

    @property
    def max_jobs(self) -> int:
        """How many compactions may run at the same time."""
        ...


async def run_while_due(context: OnDemandContext) -> None:
    """Compact until nothing has been left to do for a while, or until another compactor is seen.

    Raises:
        ShaleError: the database cannot be compacted now.
    """
    compactor = Compactor(
        context.store,
        context.root,
        context.env,
        _options(context),
        context.metrics,
        transforms=Transforms(operator=context.merge_operator, operator_name="the writer's"),
    )
    try:
        await compactor.start()
    except (LiveCoordinator, FencedError) as error:
        log.info(Event.EMBEDDED_GAVE_WAY, resource="compactor", reason=str(error))
        return
    try:
        await _compact(compactor, context)
    except FencedError as error:
        log.info(Event.EMBEDDED_GAVE_WAY, resource="compactor", reason=str(error))
    except InvalidDbState:
        return  # it is being destroyed, and the writer is about to learn that
    else:
        await compactor.release_leadership()


async def _compact(compactor: Compactor, context: OnDemandContext) -> None:
    try:
        has_work = True
        while has_work:
            await compactor.run_until_idle()
            with anyio.move_on_after(_LINGER_S) as lingering:
                await context.work.wait()
            has_work = not lingering.cancelled_caught
    except anyio.get_cancelled_exc_class():
        await compactor.release_leadership()
        raise


def _options(context: OnDemandContext) -> CompactorOptions:
    min_sources = context.work.min_sources
    return CompactorOptions(
        coordinator=CoordinatorOptions(
            # Whole runs are merged; this policy keeps obsolete rows below about a third of the referenced SSTs.
            scheduler=Leveled(
                min_compaction_sources=min_sources,
                max_compaction_sources=max(2 * min_sources, 2),
                level_base_bytes=min_sources * context.l0_sst_size_bytes,
                max_space_amplification=_SPACE_AMPLIFICATION_MAX,
            ),
            max_concurrent_compactions=context.max_jobs,
            checkpoint_lifetime_s=0.0 if context.collects else _INPUTS_KEPT_S,
            writer_epoch=context.writer_epoch,
        ),
        worker=WorkerOptions(
            max_concurrent_compactions=context.max_jobs,
            compactions_poll_interval_s=1.0,
            release_timeout_s=_RELEASE_TIMEOUT_S,
        ),
        executor=ExecutorOptions(
            sst=context.sst,
            max_subcompactions=context.max_jobs,
            max_active_ranges=context.max_jobs,
            output_cache=context.disk_cache,
        ),
        release_timeout_s=_RELEASE_TIMEOUT_S,
    )
