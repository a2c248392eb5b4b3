"""``DbReader``: reads beside a writer."""

from shale.compat.slatedb.caching import sst_id_of, warm
from shale.compat.slatedb.db import close_reason
from shale.compat.slatedb.embedded import EmbeddedTasks
from shale.compat.slatedb.errors import raises_slatedb_errors
from shale.compat.slatedb.metrics.bridge import MetricsBridge
from shale.compat.slatedb.reads import DbReads
from shale.compat.slatedb.types.enums import CacheTarget
from shale.compat.slatedb.types.records import DbStatus, SegmentPrefix
from shale.compat.slatedb.types.states import SsTableId
from shale.engine import db_reader


class DbReader(DbReads):
    """A read-only handle; made by a ``DbReaderBuilder``."""

    __slots__ = ("_background", "_reader")

    _reader: db_reader.DbReader
    _background: EmbeddedTasks

    def status(self) -> DbStatus:
        """Return its progress, and whether it is open."""
        return DbStatus(
            durable_seq=self._reader.visible_seq,
            close_reason=close_reason(self._reader.problem, is_orphan=self._is_orphan),
            segments=[SegmentPrefix(prefix=segment.prefix) for segment in self._reader.manifest.segments],
        )

    @raises_slatedb_errors
    async def shutdown(self) -> None:
        """Close; may be called again."""
        await self._background.stop()
        await self._reader.close()
        self._recording.close()

    @raises_slatedb_errors
    async def warm_sst(self, sst_id: SsTableId, targets: list[CacheTarget]) -> None:
        """Load parts of an SST into the cache; nothing happens if the manifest does not name it."""
        await warm(self._reader.cache, sst_id, targets)

    @raises_slatedb_errors
    async def evict_cached_sst(self, sst_id: SsTableId) -> None:
        """Evict an SST from the cache."""
        wanted = sst_id_of(sst_id)
        if self._reader.problem is None:
            await self._reader.cache.evict_sst(wanted)

    @raises_slatedb_errors
    async def flush_cache_to_disk(self) -> None:
        """Return at once: Shale's disk cache is written as parts are read."""
        if self._reader.problem is not None:
            raise self._reader.problem


def reader_of(reader: db_reader.DbReader, background: EmbeddedTasks, recording: MetricsBridge) -> DbReader:
    """Wrap a reader of the engine."""
    made = DbReader._blank_here()
    made._reader = made._source = reader
    made._background, made._recording = background, recording
    return made
