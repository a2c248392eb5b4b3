"""Exports the age of the newest backup of each database, if ``backup.url`` is set (docs/how-to/monitor.md).

The gc only reads the place.  Backups are made by ``shale backup create``, which is no daemon, and has no port to ask.
"""

from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

import anyio

from shale.admin.backups import connect_backups
from shale.backup.newest import NewestBackups
from shale.errors import ProtocolPanic, ShaleError
from shale.service.process import Process
from shale.service.store_startup import store_options
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale_gc.settings import GcSettings

RESOURCE = "backup"
log = get_logger("gc")


async def watch_backups(process: Process[GcSettings], roots: Callable[[], Iterable[str]]) -> None:
    """Set the metrics after each interval; return at once if no place is set.

    Args:
        process: settings, clock and metrics.
        roots: returns the paths of the databases.
    """
    settings = process.settings.backup
    watch = BackupWatch(process, roots)
    if settings.url is None:
        return
    section = settings.store if settings.store is not None else process.settings.store
    async with AsyncExitStack() as closing:
        place = connect_backups(
            settings.url.get_secret_value(), store_options(section), process.env, process.metrics, component="gc"
        )
        closing.push_async_callback(place.store.aclose)
        newest = NewestBackups(place)
        while True:
            await watch.run_once(newest)
            await anyio.sleep(settings.interval)


class BackupWatch:
    """The metrics of the backups of all databases of the process."""

    def __init__(self, process: Process[GcSettings], roots: Callable[[], Iterable[str]]) -> None:
        self._process, self._roots = process, roots
        settings = process.settings.backup
        self._max_age_s = 0.0 if settings.url is None else settings.max_age
        process.metrics.gauge("slatedb_backup_max_age_seconds").set(self._max_age_s)

    async def run_once(self, newest: NewestBackups) -> None:
        """Read what is new at the place and set the metrics; they stay as they are if the place cannot be read."""
        try:
            await newest.refresh()
        except ProtocolPanic:
            raise
        except ShaleError as error:
            log.error(Event.GC_TASK_FAILED, resource=RESOURCE, error=error)
            return
        process = self._process
        for root in self._roots():
            metrics = process.settings.metrics_of(process.metrics, root)
            metrics.gauge("slatedb_backup_max_age_seconds").set(self._max_age_s)
            started_ms = newest.started_ms(root)
            metrics.gauge("slatedb_backup_newest_timestamp_seconds").set((started_ms or 0) / 1000)
