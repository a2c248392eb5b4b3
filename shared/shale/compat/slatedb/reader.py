"""``DbReader``: reads beside a writer."""

from shale.compat.slatedb.background import Background
from shale.compat.slatedb.choices import CacheTarget
from shale.compat.slatedb.db import close_reason
from shale.compat.slatedb.errors import translates
from shale.compat.slatedb.reads import ReadCalls
from shale.compat.slatedb.recording import Recording
from shale.compat.slatedb.state_values import SsTableId
from shale.compat.slatedb.values import DbStatus, SegmentPrefix
from shale.compat.slatedb.warming import sst_id_of, warm
from shale.engine import db_reader


class DbReader(ReadCalls):
    """A database that somebody else writes; made by a ``DbReaderBuilder``."""

    __slots__ = ("_background", "_reader")

    _reader: db_reader.DbReader
    _background: Background

    def status(self) -> DbStatus:
        """What it sees, and whether it still does."""
        return DbStatus(
            durable_seq=self._reader.visible_seq,
            close_reason=close_reason(self._reader.problem, is_orphan=self._is_orphan),
            segments=[SegmentPrefix(prefix=segment.prefix) for segment in self._reader.manifest.segments],
        )

    @translates
    async def shutdown(self) -> None:
        """Let go of the database; may be called again."""
        await self._background.stop()
        await self._reader.close()
        self._recording.close()

    @translates
    async def warm_sst(self, sst_id: SsTableId, targets: list[CacheTarget]) -> None:
        """Bring parts of an SST into the cache; nothing happens if the manifest does not name it."""
        await warm(self._reader.cache, sst_id, targets)

    @translates
    async def evict_cached_sst(self, sst_id: SsTableId) -> None:
        """Let go of what the cache holds of an SST."""
        wanted = sst_id_of(sst_id)
        if self._reader.problem is None:
            await self._reader.cache.evict_sst(wanted)

    @translates
    async def flush_cache_to_disk(self) -> None:
        """Return at once: a disk cache of ours is written as parts are read."""
        if self._reader.problem is not None:
            raise self._reader.problem


def reader_of(reader: db_reader.DbReader, background: Background, recording: Recording) -> DbReader:
    """The front of a reader of the engine."""
    made = DbReader._blank_here()
    made._reader = made._source = reader
    made._background, made._recording = background, recording
    return made
