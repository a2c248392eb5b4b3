"""The collectors of one process: one for each database, independent of each other."""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

import anyio
import structlog

from shale.admin.discovery import databases_below, watch_databases
from shale.errors import LatestRecordMissing, ProtocolPanic, ShaleError, UnavailableError
from shale.gc.collector import Collector
from shale.gc.database_deleter import RESOURCE
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import is_destroyed
from shale.service.process import Process
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Manifest
from shale_gc.settings import GcSettings
from shale_gc.wal_stores import WalStores

log = get_logger("gc")


class CollectorPool:
    """Collectors by database path; the collector of a deleted database is removed.

    Attributes:
        collectors: the running collectors.
        waiting: databases that do not exist yet or could not be read, with the reason.
    """

    def __init__(self, process: Process[GcSettings]) -> None:
        self.process = process
        self.collectors: dict[str, Collector] = {}
        self.waiting: dict[str, str] = {}
        self._settings = process.settings
        self._wal_stores = WalStores(process)

    def __iter__(self) -> Iterator[tuple[str, Collector]]:
        return iter(tuple(self.collectors.items()))

    async def run(self) -> None:
        """Run all collectors until the last database is deleted; without end if discovery is enabled.

        Raises:
            LatestRecordMissing: the only named database did not appear within ``store.start_timeout``.
            CorruptionError: its manifest is corrupt.  With several databases, the others are still collected.
            ProtocolPanic: a protocol invariant is broken; nothing more may be written.
        """
        settings, process = self.process.settings, self.process
        roots = settings.roots()
        async with self._wal_stores:
            if roots == (process.root,):
                self._make(process.root, await process.wait_for(partial(self._wal_store_of, process.root)))
            process.ready(tasks=[task.value for task in settings.options().enabled], databases=len(roots))
            async with anyio.create_task_group() as tasks:
                for root in roots:
                    self._start(tasks, root, is_named=True)
                if settings.databases_below is not None:
                    tasks.start_soon(self._discover, settings.databases_below, name="discovery")

    async def run_once(self) -> None:
        """Run one pass over each existing database, one after the other.

        Raises:
            ShaleError: the first error, after all passes; a missing named database is an error.
            ProtocolPanic: a protocol invariant is broken; nothing more may be written.
        """
        settings, failed = self.process.settings, list[ShaleError]()
        named = settings.roots()
        self.process.ready(tasks=[task.value for task in settings.options().enabled], databases=len(named))
        async with self._wal_stores:
            for root in named:
                failed += await self._pass_over(root)
            if settings.databases_below is not None:
                async for root in databases_below(self.process.store, settings.databases_below):
                    if root not in named:
                        failed += await self._pass_over(root, is_named=False)
        if failed:
            raise failed[0]

    async def _pass_over(self, root: str, *, is_named: bool = True) -> list[ShaleError]:
        is_other = root != self.process.root
        with structlog.contextvars.bound_contextvars(db=self._settings.label_of(root)) if is_other else nullcontext():
            try:
                self._make(root, await self._wal_store_of(root))
                await self.collectors[root].run_once()
            except ProtocolPanic:
                raise
            except ShaleError as error:
                if not is_named and isinstance(error, LatestRecordMissing):
                    return []  # deleted since discovery, or not created completely yet
                log.error(Event.GC_TASK_FAILED, resource=RESOURCE, error=error)
                return [error]
            finally:
                self.collectors.pop(root, None)
        return []

    def reload(self, settings: GcSettings) -> None:
        """Apply new intervals, ages and concurrency; a task that was disabled at the start stays disabled."""
        self._settings = settings
        for _, collector in self:
            collector.reconfigure(settings.options())

    async def _discover(self, below: str) -> None:
        async with anyio.create_task_group() as tasks:

            def found(root: str) -> None:
                if root not in self.collectors and root not in self.waiting:
                    self._start(tasks, root, is_named=False)

            await watch_databases(
                self.process.store,
                below,
                found=found,
                failed=lambda error: log.error(Event.GC_TASK_FAILED, resource="discovery", error=error),
                interval_s=lambda: self._settings.databases_interval,
            )

    def _start(self, tasks: anyio.abc.TaskGroup, root: str, *, is_named: bool) -> None:
        if root not in self.collectors:
            self.waiting[root] = "not checked yet"
        tasks.start_soon(partial(self._collect, root, is_named=is_named), name=f"gc {root}")

    async def _collect(self, root: str, *, is_named: bool) -> None:
        if root != self.process.root:
            structlog.contextvars.bind_contextvars(db=self._settings.label_of(root))
        while root not in self.collectors:
            try:
                self._make(root, await self._wal_store_of(root))
            except (LatestRecordMissing, UnavailableError) as error:
                # It may not be created yet.  A discovered database will be discovered again.
                if not is_named:
                    del self.waiting[root]
                    return
                self.waiting[root] = str(error)
                log.error(Event.GC_TASK_FAILED, resource=RESOURCE, error=error)
                await anyio.sleep(self._settings.databases_interval)
            except ProtocolPanic:
                raise
            except ShaleError as error:
                # The other databases go on.  This collector reports the same error in its task states.
                log.error(Event.GC_TASK_FAILED, resource=RESOURCE, error=error)
                self._make(root, self.process.wal_store)
        try:
            await self.collectors[root].run()
        finally:
            del self.collectors[root]

    async def _wal_store_of(self, root: str) -> ObjectStore | None:
        """Return the store of a database's WAL; ``None``: the main store.

        Raises:
            LatestRecordMissing: there is neither a database nor the remains of a destroyed one.
            CorruptionError: the manifest is corrupt.
            UnavailableError: the store did not respond.
        """
        return self._wal_stores.of(root, await self._manifest_of(root))

    async def _manifest_of(self, root: str) -> Manifest | None:
        process = self.process
        latest = await ManifestStore(process.store, root, process.env).try_read_latest()
        if latest is None and not await is_destroyed(process.store, root):
            raise LatestRecordMissing(f"no manifest below {root or '/'}")
        return None if latest is None else latest.value

    def _make(self, root: str, wal_store: ObjectStore | None) -> None:
        process = self.process
        metrics = self._settings.metrics_of(process.metrics, root)
        options = self._settings.options()
        self.collectors[root] = Collector(process.store, root, process.env, options, metrics, wal_store=wal_store)
        self.waiting.pop(root, None)
