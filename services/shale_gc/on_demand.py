"""GC in the process of a writer, one pass at a time (docs/how-to/embedded-services.md)."""

from typing import Protocol

from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.service.embedded import ServiceContext
from shale.store.port import ObjectStore

_TASK = TaskOptions(min_age_s=90.0)
"""Above the longest stall of a WAL put and the longest use of a cached version, 60 s each; a daemon keeps more."""


class CollectionContext(ServiceContext, Protocol):
    """The writer's database."""

    @property
    def wal_store(self) -> ObjectStore | None:
        """The store of the WAL, if it is another."""
        ...


async def collect_once(context: CollectionContext) -> None:
    """Run one pass of each task.  A database that is marked as destroyed is left to the daemon.

    Raises:
        ShaleError: the first error of a pass.
    """
    options = GcOptions(
        manifest=_TASK, wal=_TASK, compacted=_TASK, compactions=_TASK, staged=None, delete_grace_period_s=None
    )
    collector = Collector(
        context.store, context.root, context.env, options, context.metrics, wal_store=context.wal_store
    )
    await collector.run_once()
