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
    await _Passes(context).run()


class _Passes:
    """The passes over files and over versions, each with its own interval."""

    def __init__(self, context: CollectionContext) -> None:
        self._work = context.work
        self._monotonic_s = context.env.clock.monotonic_s
        self._retention = GarbageRetention(context.env.clock, context.root, context.is_own_wal)
        options = GcOptions(
            manifest=_VERSIONS,
            wal=_FILES,
            compacted=_FILES,
            compactions=_VERSIONS,
            staged=None,
            delete_grace_period_s=None,
            filter=self._retention.filter,
        )
        self._collector = Collector(
            context.store, context.root, context.env, options, context.metrics, wal_store=context.wal_store
        )
        self._beside_files = anyio.CancelScope()

    async def run(self) -> None:
        """Run the passes until nothing has changed for a while."""
        await gather([self._files, self._others])

    async def _files(self) -> None:
        seen, changed_s = self._work.trees, self._monotonic_s()
        while self._monotonic_s() - changed_s < _QUIET_S:
            await self._sweep(_FILE_TASKS)
            stored_bytes = sum(state.progress.listed_bytes for state in self._collector.states.values())
            self._retention.adapt(stored_bytes, live_bytes(self._work.manifest))
            is_busy = self._monotonic_s() - changed_s < _BUSY_S
            await anyio.sleep(self._retention.interval_s if is_busy else _INTERVAL_S)
            if self._work.trees != seen:
                seen, changed_s = self._work.trees, self._monotonic_s()
        self._beside_files.cancel()

    async def _others(self) -> None:
        with self._beside_files:
            await gather([self._versions, self._watch])

    async def _versions(self) -> None:
        while True:
            await self._sweep(_VERSION_TASKS)
            await anyio.sleep(_INTERVAL_S)

    async def _watch(self) -> None:
        while True:
            self._retention.dropped(await self._work.wait_compacted())

    async def _sweep(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            await self._collector.sweep(task)
        self._retention.end_pass(tasks)


def live_bytes(manifest: Manifest) -> int:
    """Return the size of all SSTs that a manifest references."""
    trees = [tree for _, tree in manifest.trees()]
    return sum(view.sst.estimated_size_bytes for tree in trees for view in tree.l0) + sum(
        run.estimated_size_bytes for tree in trees for run in tree.compacted
    )
