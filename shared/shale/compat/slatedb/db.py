"""``Db``: the writer, with the services that SlateDB embeds in it."""

from typing import Literal

from shale.compat.slatedb.arguments import checked_key, checked_value, lifetime, seqnum_of
from shale.compat.slatedb.caching import sst_id_of, warm
from shale.compat.slatedb.embedded import EmbeddedTasks
from shale.compat.slatedb.errors import error_of, raises_slatedb_errors
from shale.compat.slatedb.metrics.bridge import MetricsBridge
from shale.compat.slatedb.reads import DbReads
from shale.compat.slatedb.transaction import DbSnapshot, DbTransaction, snapshot_of, transaction_of
from shale.compat.slatedb.types.enums import CacheTarget, CloseReason, FlushType, IsolationLevel, Ttl
from shale.compat.slatedb.types.options import CloseOptions, FlushOptions, MergeOptions, PutOptions, WriteOptions
from shale.compat.slatedb.types.records import DbStatus, SegmentPrefix
from shale.compat.slatedb.types.states import SsTableId
from shale.compat.slatedb.writes import WriteBatch, WriteHandle, handle_of, taken_from
from shale.engine import db as engine_db
from shale.engine import options as engine_options
from shale.engine.txn.context import Isolation
from shale.engine.write import batch as engine
from shale.engine.write import write_handle
from shale.errors import ClosedError, FencedError, ProtocolPanic, ShaleError, WalDisabled

_FLUSHES = {FlushType.MEM_TABLE: engine_options.FlushType.MEMTABLE, FlushType.WAL: engine_options.FlushType.WAL}
_ISOLATION: dict[IsolationLevel, Isolation] = {
    IsolationLevel.SNAPSHOT: "snapshot",
    IsolationLevel.SERIALIZABLE_SNAPSHOT: "serializable",
}


class Db(DbReads):
    """The one writer of a database; made by a ``DbBuilder``, used from one event loop."""

    __slots__ = ("_background", "_db", "_has_wal", "_is_closed")

    _db: engine_db.Db
    _background: EmbeddedTasks
    _has_wal: bool
    _is_closed: bool

    def status(self) -> DbStatus:
        """Return its progress, and whether it still is the writer."""
        reason = (
            CloseReason.CLEAN if self._is_closed else close_reason(self._db.status.problem, is_orphan=self._is_orphan)
        )
        segments = [SegmentPrefix(prefix=prefix) for prefix in self._db.status.segments]
        return DbStatus(durable_seq=self._db.status.durable_seq, close_reason=reason, segments=segments)

    @raises_slatedb_errors
    async def put(self, key: bytes, value: bytes) -> WriteHandle:
        """Write a value."""
        return self._wrote(await self._db.put(checked_key(key), checked_value(value)))

    @raises_slatedb_errors
    async def put_with_options(
        self, key: bytes, value: bytes, put_options: PutOptions, write_options: WriteOptions
    ) -> WriteHandle:
        """Write a value with a lifetime, or with a given sequence number."""
        return await self._write_value("put", key, value, put_options.ttl, write_options)

    @raises_slatedb_errors
    async def delete(self, key: bytes) -> WriteHandle:
        """Delete a key."""
        return self._wrote(await self._db.delete(checked_key(key)))

    @raises_slatedb_errors
    async def delete_with_options(self, key: bytes, options: WriteOptions) -> WriteHandle:
        """Delete a key, optionally with a given sequence number."""
        return self._wrote(await self._db.delete(checked_key(key), seq=seqnum_of(options)))

    @raises_slatedb_errors
    async def merge(self, key: bytes, operand: bytes) -> WriteHandle:
        """Add an operand for the merge operator."""
        return self._wrote(await self._db.merge(checked_key(key), checked_value(operand)))

    @raises_slatedb_errors
    async def merge_with_options(
        self, key: bytes, operand: bytes, merge_options: MergeOptions, write_options: WriteOptions
    ) -> WriteHandle:
        """Add an operand with a lifetime, or with a given sequence number."""
        return await self._write_value("merge", key, operand, merge_options.ttl, write_options)

    @raises_slatedb_errors
    async def write(self, batch: WriteBatch) -> WriteHandle:
        """Write a batch, which cannot be used again."""
        return await self._write(taken_from(batch), None)

    @raises_slatedb_errors
    async def write_with_options(self, batch: WriteBatch, options: WriteOptions) -> WriteHandle:
        """Write a batch, optionally with a given sequence number."""
        return await self._write(taken_from(batch), options)

    @raises_slatedb_errors
    async def begin(self, isolation_level: IsolationLevel) -> DbTransaction:
        """Begin a transaction."""
        begun = self._db.transaction(_ISOLATION[isolation_level])
        begun.tells_own_lifetimes = False
        return transaction_of(await begun, self._recording)

    @raises_slatedb_errors
    async def snapshot(self) -> DbSnapshot:
        """Return a snapshot of the database."""
        return snapshot_of(await self._db.snapshot(), self._recording)

    @raises_slatedb_errors
    async def flush(self) -> None:
        """Make all writes durable."""
        self._recording.flush(1)
        await self._db.flush()

    @raises_slatedb_errors
    async def flush_with_options(self, options: FlushOptions) -> None:
        """Make all writes durable, and optionally flush them to L0."""
        self._recording.flush(1)
        await self._db.flush(_FLUSHES[options.flush_type])

    @raises_slatedb_errors
    async def shutdown(self) -> None:
        """Flush and close; a handle that had failed only releases its resources.

        Raises:
            Error: it is closed already, or failed while closing.
        """
        await self._shut_down(engine_options.FlushType.MEMTABLE)

    @raises_slatedb_errors
    async def shutdown_with_options(self, options: CloseOptions) -> None:
        """Close, after the flush that the options name.

        Raises:
            Error: it is closed already, or failed while closing; or a WAL flush without a WAL, which closes all the
                same.
        """
        kind = options.flush_type
        if kind is FlushType.WAL and not self._has_wal and not self._is_closed:
            await self._shut_down(engine_options.FlushType.NONE)
            raise WalDisabled("attempted a WAL operation when the WAL is disabled")
        await self._shut_down(engine_options.FlushType.NONE if kind is None else _FLUSHES[kind])

    @raises_slatedb_errors
    async def warm_sst(self, sst_id: SsTableId, targets: list[CacheTarget]) -> None:
        """Load parts of an SST into the cache; nothing happens if the manifest does not name it."""
        await warm(self._db.cache, sst_id, targets)

    @raises_slatedb_errors
    async def evict_cached_sst(self, sst_id: SsTableId) -> None:
        """Evict an SST from the cache."""
        wanted = sst_id_of(sst_id)
        if self.status().close_reason is None:
            await self._db.cache.evict_sst(wanted)

    @raises_slatedb_errors
    async def flush_cache_to_disk(self) -> None:
        """Return at once: Shale's disk cache is written as parts are read."""
        if self._is_closed:
            raise error_of(ClosedError("closed"))
        if self._db.status.problem is not None:
            raise self._db.status.problem

    async def _write_value(
        self, operation: Literal["put", "merge"], key: bytes, value: bytes, ttl: Ttl, options: WriteOptions
    ) -> WriteHandle:
        """Write one row."""
        plain, content, life = checked_key(key), checked_value(value), lifetime(ttl)
        write = self._db.put if operation == "put" else self._db.merge
        return self._wrote(await write(plain, content, **life, seq=seqnum_of(options)))

    async def _write(self, batch: engine.WriteBatch, options: WriteOptions | None) -> WriteHandle:
        return self._wrote(await self._db.write(batch, seq=seqnum_of(options)))

    def _wrote(self, handle: write_handle.WriteHandle) -> WriteHandle:
        self._recording.wrote()
        return handle_of(handle)

    async def _shut_down(self, flush: engine_options.FlushType) -> None:
        """Close.  A writer that had failed releases everything and keeps its error."""
        if self._is_closed:
            raise error_of(ClosedError("closed"))
        await self._background.stop()
        failed = self._db.status.problem is not None
        try:
            await self._db.close(flush)
        except ShaleError:
            if not failed:
                raise
        finally:
            self._recording.close()
        self._is_closed = not failed


def close_reason(problem: ShaleError | None, *, is_orphan: bool) -> CloseReason | None:
    """Return why a handle is closed.  A handle whose event loop has ended counts as failed, not as closed."""
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


def db_of(db: engine_db.Db, background: EmbeddedTasks, recording: MetricsBridge, *, has_wal: bool) -> Db:
    """Wrap a writer of the engine."""
    made = Db._blank_here()
    made._db = made._source = db
    made._background, made._recording, made._has_wal, made._is_closed = background, recording, has_wal, False
    return made
