"""GC in the process of a writer, while there is something to collect (docs/how-to/embedded-services.md)."""

from collections.abc import Callable, Sequence
from typing import Protocol

import anyio

from shale.concurrency.gather import gather
from shale.engine.embedded.work import L0Work
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, Task, TaskOptions
from shale.service.embedded import ServiceContext
from shale.store.port import ObjectStore
from shale.types import Manifest
from shale_gc.garbage_retention import KEPT_MIN_S, STALLED_WRITER_S, GarbageRetention

_QUIET_S = 2 * STALLED_WRITER_S
"""Passes go on for so long after the last change: whatever it made obsolete is deleted then."""
_INTERVAL_S = 30.0
_BUSY_S = 10.0
"""So long after a change passes follow each other quickly."""
_VERSIONS = TaskOptions(min_age_s=STALLED_WRITER_S)
"""Above the longest use of a cached version, 60 s: a process that looks for the next one must find it."""
_FILES = TaskOptions(min_age_s=KEPT_MIN_S)
_FILE_TASKS = (Task.COMPACTED, Task.WAL)
_VERSION_TASKS = (Task.MANIFEST, Task.COMPACTIONS)
"""Their passes take longer, and what they delete is small: files do not wait for them."""


class CollectionContext(ServiceContext, Protocol):
    """The writer's database."""

    @property
    def wal_store(self) -> ObjectStore | None:
        """The store of the WAL, if it is another."""
        ...

    @property
    def is_own_wal(self) -> Callable[[int], bool]:
        """Whether a WAL file was written and flushed by the writer of this process."""
        ...

    @property
    def work(self) -> L0Work:
        """Knows the newest manifest."""
        ...


async def collect_while_due(context: CollectionContext) -> None:
    """Collect until nothing has changed for a while.  A database that is marked as destroyed is left to the daemon.

    Raises:
        ShaleError: the first error of a pass.
    """
    clock, work = context.env.clock, context.work
    retention = GarbageRetention(clock, context.root, context.is_own_wal)
    options = GcOptions(
        manifest=_VERSIONS,
        wal=_FILES,
        compacted=_FILES,
        compactions=_VERSIONS,
        staged=None,
        delete_grace_period_s=None,
        filter=retention.filter,
    )
    collector = Collector(
        context.store, context.root, context.env, options, context.metrics, wal_store=context.wal_store
    )
    over = anyio.Event()

    async def sweep(tasks: Sequence[Task]) -> None:
        for task in tasks:
            await collector.sweep(task)
        retention.end_pass(tasks)

    async def collect_files() -> None:
        seen, changed_s = work.trees, clock.monotonic_s()
        while clock.monotonic_s() - changed_s < _QUIET_S:
            await sweep(_FILE_TASKS)
            stored_bytes = sum(state.progress.listed_bytes for state in collector.states.values())
            retention.adapt(stored_bytes, live_bytes(work.manifest))
            is_busy = clock.monotonic_s() - changed_s < _BUSY_S
            await anyio.sleep(KEPT_MIN_S)
            with anyio.move_on_after((retention.interval_s if is_busy else _INTERVAL_S) - KEPT_MIN_S):
                await work.wait_compacted()  # the time that its inputs are kept begins with a pass
            if work.trees != seen:
                seen, changed_s = work.trees, clock.monotonic_s()
        over.set()

    async def collect_versions() -> None:
        while not over.is_set():
            await sweep(_VERSION_TASKS)
            with anyio.move_on_after(_INTERVAL_S):
                await over.wait()

    await gather([collect_files, collect_versions])


def live_bytes(manifest: Manifest) -> int:
    """Return the size of all SSTs that a manifest references."""
    trees = [tree for _, tree in manifest.trees()]
    return sum(view.sst.estimated_size_bytes for tree in trees for view in tree.l0) + sum(
        run.estimated_size_bytes for tree in trees for run in tree.compacted
    )
