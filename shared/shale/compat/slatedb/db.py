"""``Db``: the writer, with what SlateDB runs beside it."""

from shale.compat.slatedb.arguments import checked_key, checked_value, lifetime, seqnum_of
from shale.compat.slatedb.background import Background
from shale.compat.slatedb.choices import CacheTarget, CloseReason, FlushType, IsolationLevel
from shale.compat.slatedb.errors import error_of, translates
from shale.compat.slatedb.options import CloseOptions, FlushOptions, MergeOptions, PutOptions, WriteOptions
from shale.compat.slatedb.reads import ReadCalls
from shale.compat.slatedb.recording import Recording
from shale.compat.slatedb.state_values import SsTableId
from shale.compat.slatedb.transaction import DbSnapshot, DbTransaction, snapshot_of, transaction_of
from shale.compat.slatedb.values import DbStatus, SegmentPrefix
from shale.compat.slatedb.warming import sst_id_of, warm
from shale.compat.slatedb.writes import WriteBatch, WriteHandle, batch_of, handle_of, taken_from
from shale.engine import batch as engine
from shale.engine import db as engine_db
from shale.engine import options as engine_options
from shale.engine import write_handle
from shale.errors import ClosedError, FencedError, ProtocolPanic, ShaleError, WalDisabled

_FLUSHES = {FlushType.MEM_TABLE: engine_options.FlushType.MEMTABLE, FlushType.WAL: engine_options.FlushType.WAL}
_ISOLATION = {IsolationLevel.SNAPSHOT: "snapshot", IsolationLevel.SERIALIZABLE_SNAPSHOT: "serializable"}


class Db(ReadCalls):
    """The one writer of a database; made by a ``DbBuilder``, used from one event loop."""

    __slots__ = ("_background", "_db", "_has_wal", "_is_closed")

    _db: engine_db.Db
    _background: Background
    _has_wal: bool
    _is_closed: bool

    def status(self) -> DbStatus:
        """How far it is, and whether it still is the writer."""
        reason = CloseReason.CLEAN if self._is_closed else close_reason(self._db.problem, is_orphan=self._is_orphan)
        segments = [SegmentPrefix(prefix=prefix) for prefix in self._db.segments]
        return DbStatus(durable_seq=self._db.durable_seq, close_reason=reason, segments=segments)

    @translates
    async def put(self, key: bytes, value: bytes) -> WriteHandle:
        """Write a value."""
        return self._wrote(await self._db.put(checked_key(key), checked_value(value)))

    @translates
    async def put_with_options(
        self, key: bytes, value: bytes, put_options: PutOptions, write_options: WriteOptions
    ) -> WriteHandle:
        """Write a value with a lifetime, or under a sequence number of the caller's."""
        plain, content, ttl = checked_key(key), checked_value(value), lifetime(put_options.ttl)
        if not write_options.seqnum:
            return self._wrote(await self._db.put(plain, content, **ttl))
        return await self._write(batch_of(lambda batch: batch.put(plain, content, **ttl)), write_options)

    @translates
    async def delete(self, key: bytes) -> WriteHandle:
        """Remove a key."""
        return self._wrote(await self._db.delete(checked_key(key)))

    @translates
    async def delete_with_options(self, key: bytes, options: WriteOptions) -> WriteHandle:
        """Remove a key, perhaps under a sequence number of the caller's."""
        plain = checked_key(key)
        if not options.seqnum:
            return self._wrote(await self._db.delete(plain))
        return await self._write(batch_of(lambda batch: batch.delete(plain)), options)

    @translates
    async def merge(self, key: bytes, operand: bytes) -> WriteHandle:
        """Add an operand for the merge operator."""
        return self._wrote(await self._db.merge(checked_key(key), checked_value(operand)))

    @translates
    async def merge_with_options(
        self, key: bytes, operand: bytes, merge_options: MergeOptions, write_options: WriteOptions
    ) -> WriteHandle:
        """Add an operand with a lifetime, or under a sequence number of the caller's."""
        plain, content, ttl = checked_key(key), checked_value(operand), lifetime(merge_options.ttl)
        if not write_options.seqnum:
            return self._wrote(await self._db.merge(plain, content, **ttl))
        return await self._write(batch_of(lambda batch: batch.merge(plain, content, **ttl)), write_options)

    @translates
    async def write(self, batch: WriteBatch) -> WriteHandle:
        """Write a batch, which is used up."""
        return await self._write(taken_from(batch), None)

    @translates
    async def write_with_options(self, batch: WriteBatch, options: WriteOptions) -> WriteHandle:
        """Write a batch, perhaps under a sequence number of the caller's."""
        return await self._write(taken_from(batch), options)

    @translates
    async def begin(self, isolation_level: IsolationLevel) -> DbTransaction:
        """Begin a transaction."""
        return transaction_of(await self._db.transaction(_ISOLATION[isolation_level]), self._recording)

    @translates
    async def snapshot(self) -> DbSnapshot:
        """The database as it is now."""
        return snapshot_of(await self._db.snapshot(), self._recording)

    @translates
    async def flush(self) -> None:
        """Make everything that is written durable."""
        self._recording.flush(1)
        await self._db.flush()

    @translates
    async def flush_with_options(self, options: FlushOptions) -> None:
        """Make everything that is written durable, and perhaps bring it to L0."""
        self._recording.flush(1)
        await self._db.flush(_FLUSHES[options.flush_type])

    @translates
    async def shutdown(self) -> None:
        """Flush and close; one that had failed, say because it was fenced, only lets go of what it holds.

        Raises:
            Error: it is closed already, or failed while closing.
        """
        await self._shut_down(engine_options.FlushType.MEMTABLE)

    @translates
    async def shutdown_with_options(self, options: CloseOptions) -> None:
        """Close, after as much flushing as the options say.

        Raises:
            Error: it is closed already, or failed while closing; or a WAL flush without a WAL, after closing all the
                same.
        """
        kind = options.flush_type
        if kind is FlushType.WAL and not self._has_wal and not self._is_closed:
            await self._shut_down(engine_options.FlushType.NONE)
            raise WalDisabled("attempted a WAL operation when the WAL is disabled")
        await self._shut_down(engine_options.FlushType.NONE if kind is None else _FLUSHES[kind])

    @translates
    async def warm_sst(self, sst_id: SsTableId, targets: list[CacheTarget]) -> None:
        """Bring parts of an SST into the cache; nothing happens if the manifest does not name it."""
        await warm(self._db.cache, sst_id, targets)

    @translates
    async def evict_cached_sst(self, sst_id: SsTableId) -> None:
        """Let go of what the cache holds of an SST."""
        wanted = sst_id_of(sst_id)
        if self.status().close_reason is None:
            await self._db.cache.evict_sst(wanted)

    @translates
    async def flush_cache_to_disk(self) -> None:
        """Return at once: a disk cache of ours is written as parts are read."""
        if self._is_closed:
            raise error_of(ClosedError("closed"))
        if self._db.problem is not None:
            raise self._db.problem

    async def _write(self, batch: engine.WriteBatch, options: WriteOptions | None) -> WriteHandle:
        return self._wrote(await self._db.write(batch, seq=seqnum_of(options)))

    def _wrote(self, handle: write_handle.WriteHandle) -> WriteHandle:
        self._recording.wrote()
        return handle_of(handle)

    async def _shut_down(self, flush: engine_options.FlushType) -> None:
        """Close.  A writer that had failed lets go of everything and keeps telling why."""
        if self._is_closed:
            raise error_of(ClosedError("closed"))
        await self._background.stop()
        failed = self._db.problem is not None
        try:
            await self._db.close(flush)
        except ShaleError:
            if not failed:
                raise
        finally:
            self._recording.close()
        self._is_closed = not failed


def close_reason(problem: ShaleError | None, *, is_orphan: bool) -> CloseReason | None:
    """Why a handle is none any more.  One whose event loop has ended without it can do nothing, and was not closed."""
    match problem:
        case None:
            return CloseReason.UNKNOWN if is_orphan else None
        case FencedError():
            return CloseReason.FENCED
        case ClosedError():
            return CloseReason.CLEAN
        case ProtocolPanic():
            return CloseReason.PANIC
        case _:
            return CloseReason.UNKNOWN


def db_of(db: engine_db.Db, background: Background, recording: Recording, *, has_wal: bool) -> Db:
    """The front of a writer of the engine."""
    made = Db._blank_here()
    made._db = made._source = db
    made._background, made._recording, made._has_wal, made._is_closed = background, recording, has_wal, False
    return made
