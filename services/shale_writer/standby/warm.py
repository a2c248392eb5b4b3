"""Keeps what a takeover needs in memory: metadata of SSTs, and the rows of the WAL.

Both are followed as a reader does that has no checkpoint: nothing is written, and no garbage is kept.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from shale.engine.db import Db
from shale.engine.db_cache import adopt_cache
from shale.engine.db_reader import DbReader
from shale.engine.wal.prefetch import WalPrefetch
from shale.engine.warm import CacheTarget
from shale.errors import ShaleError
from shale.kernels.rows import Rows
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Manifest

RETRY_S = 10.0
METADATA = (CacheTarget.INDEX, CacheTarget.FILTERS, CacheTarget.STATS)

log = get_logger("standby")

OpenReader = Callable[[], Awaitable[DbReader]]


class WarmCache:
    """A reader whose cache has the metadata of all SSTs of the newest manifest.

    Args:
        open_reader: opens the reader; raises while there is no database.
    """

    def __init__(self, open_reader: OpenReader) -> None:
        self._open_reader = open_reader
        self._reader: DbReader | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the database until the block ends; the cache is kept until ``aclose``."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow, name="standby.warm")
            yield
            tasks.cancel_scope.cancel()

    async def hand_over(self, db: Db) -> int:
        """Give the new writer what is cached; return the number of SSTs.  A cache is no reason to fail."""
        if self._reader is None:
            return 0
        try:
            return await adopt_cache(db.cache, self._reader.cache)
        except ShaleError as error:
            log.warning(Event.STANDBY_WARM_FAILED, error=str(error))
            return 0

    async def aclose(self) -> None:
        """Close the reader."""
        reader, self._reader = self._reader, None
        if reader is not None:
            with anyio.CancelScope(shield=True):
                await reader.close()

    async def _follow(self) -> None:
        while True:
            try:
                if self._reader is None:
                    self._reader = await self._open_reader()
                async for _ in self._reader.subscribe():
                    await self._reader.cache.warm(targets=METADATA)
            except ShaleError as error:
                # There is no database yet, or GC has deleted an SST that compaction replaced.
                log.warning(Event.STANDBY_WARM_FAILED, error=str(error))
                await self.aclose()
            await anyio.sleep(RETRY_S)


class WarmWal:
    """Follows the WAL until the takeover, which gets the rows that were read.

    Args:
        prefetch: reads the files and bounds the memory.
        newest: returns the newest manifest that the standby has seen; ``None``: there is no database.
        interval_s: between two looks for new files.
        metrics: shows the memory.
    """

    def __init__(
        self, prefetch: WalPrefetch, newest: Callable[[], Manifest | None], interval_s: float, metrics: Metrics
    ) -> None:
        self._prefetch = prefetch
        self._newest = newest
        self._interval_s = interval_s
        self._is_paused = False
        cached = metrics.gauge("shale_standby_wal_cache_bytes")
        metrics.before_scrape(lambda: cached.set(prefetch.size_bytes))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the WAL until the block ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow, name="standby.wal")
            yield
            tasks.cancel_scope.cancel()

    async def take(self) -> dict[int, Rows]:
        """Return the rows by file for a takeover, and read nothing more before ``resume``."""
        self._is_paused = True
        try:
            return await self._prefetch.take()
        except ShaleError as error:
            # Replay reads the files from the store.
            log.warning(Event.STANDBY_WARM_FAILED, error=str(error))
            return {}

    def resume(self) -> None:
        """Follow the WAL again: another process took over."""
        self._is_paused = False

    async def _follow(self) -> None:
        while True:
            wait_s = self._interval_s
            manifest = self._newest()
            if manifest is not None and not self._is_paused:
                try:
                    await self._prefetch.advance(manifest)
                except ShaleError as error:
                    log.warning(Event.STANDBY_WARM_FAILED, error=str(error))
                    wait_s = RETRY_S
            await anyio.sleep(wait_s)
