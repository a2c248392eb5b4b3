"""The databases of one process: a collector for each, and an end of its own for each."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import anyio
import structlog

from shale.garbage.collector import Collector
from shale.garbage.database import Database
from shale.garbage.discovery import databases_below
from shale.protocol.markers import is_destroyed
from shale.service.process import Process
from shale.telemetry.metrics import Metrics
from shale_gc.settings import GcSettings

DISCOVERY_S = 60.0
"""How often new databases are looked for."""


@dataclass(slots=True)
class Fleet:
    """Collectors by the path of their database; those whose database is gone have left."""

    process: Process[GcSettings]
    collectors: dict[str, Collector] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[str, Collector]]:
        return iter(tuple(self.collectors.items()))

    async def run(self) -> None:
        """Collect until the last database is gone; for ever if new ones are looked for.

        Raises:
            LatestRecordMissing: the one database that was named was not there within ``store.start_timeout``.
            ProtocolPanic: something happened that must not be written on.
        """
        settings, process = self.process.settings, self.process
        roots = settings.roots()
        if roots == (process.root,):
            collector = self._made(process.root)
            await process.wait_for(partial(_require_database, collector.database))
        process.ready(tasks=[task.value for task in settings.options().enabled], databases=len(roots))
        async with anyio.create_task_group() as tasks:
            for root in roots:
                tasks.start_soon(self._collect, root, name=f"gc {root}")
            if settings.databases_below is not None:
                tasks.start_soon(self._look_for_more, settings.databases_below, name="discovery")

    def take_over(self, settings: GcSettings) -> None:
        """Intervals, ages and concurrency change while running; which tasks are on does not."""
        for _, collector in self:
            collector.options = settings.options()

    async def _look_for_more(self, below: str) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                async for root in databases_below(self.process.store, below):
                    if root not in self.collectors:
                        self._made(root)
                        tasks.start_soon(self._collect, root, name=f"gc {root}")
                await anyio.sleep(DISCOVERY_S)

    async def _collect(self, root: str) -> None:
        if root != self.process.root:
            structlog.contextvars.bind_contextvars(db=root)
        collector = self._made(root)
        try:
            await collector.run()
        finally:
            del self.collectors[root]

    def _made(self, root: str) -> Collector:
        if root not in self.collectors:
            process = self.process
            self.collectors[root] = Collector(
                process.store,
                root,
                process.env,
                process.settings.options(),
                self._metrics(root),
                wal_store=process.wal_store,
            )
        return self.collectors[root]

    def _metrics(self, root: str) -> Metrics:
        return self.process.metrics if root == self.process.root else self.process.metrics.for_database(root)


async def _require_database(database: Database) -> None:
    """Return if there is a database, or what is left of one that was destroyed and has to be finished.

    Raises:
        LatestRecordMissing: there is neither.
    """
    if not await is_destroyed(database.store, database.root):
        await database.manifests.read_latest()
