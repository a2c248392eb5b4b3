"""Keeps the caches of a standby warm, as a reader without a checkpoint: it writes nothing and keeps no garbage."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from shale.engine.db import Db
from shale.engine.db_cache import adopt_cache
from shale.engine.db_reader import DbReader
from shale.engine.warm import CacheTarget
from shale.errors import ShaleError
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

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
