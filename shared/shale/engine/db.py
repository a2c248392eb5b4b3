"""``Db``: a database open for reading and writing, a thin front (docs/concepts/architecture.md)."""

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload
from uuid import UUID

import anyio

from shale.codecs.codec import Codec
from shale.codecs.plain import BYTES
from shale.core.async_use import MadeByOpen
from shale.core.bytes_like import BytesLike
from shale.core.lazy_names import import_at_call
from shale.core.settings_values import Duration, parse_checkpoint_id, parse_lifetime_ms
from shale.core.suggestions import invalid_choice
from shale.core.ttl import Timestamp, Ttl, resolve_lifetime
from shale.engine.flush.checkpointing import CheckpointRequest, CheckpointScope
from shale.engine.lifecycle import DatabaseLifecycle
from shale.engine.location import DatabaseLocation, DatabaseStores
from shale.engine.open import open_for_writing
from shale.engine.open_context import OpenContext
from shale.engine.open_options import DbOpenOptions, OpenArguments, choose_options
from shale.engine.options import DbOptions, FlushType
from shale.engine.read.read_point import Durability, ReadPoint
from shale.engine.read.reads import Reads, checked_durability
from shale.engine.status import DbStatus, writer_state
from shale.engine.write.batch import WriteBatch, require_batch
from shale.engine.write.batch_context import BatchContext
from shale.engine.write.write_handle import WriteHandle
from shale.engine.write.writer import Writer
from shale.env import Env
from shale.errors import ClosedError, ShaleError
from shale.protocol.checkpoints import require_checkpoint_reference, require_name
from shale.store.location import UrlOrPath
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Checkpoint

if TYPE_CHECKING:
    from shale.engine.db_cache import DbCache
    from shale.engine.embedded.services import EmbeddedServices
    from shale.engine.mapping import KeySpace, WriteMapping
    from shale.engine.read.snapshot import Snapshot
    from shale.engine.txn.context import Isolation, TransactionContext
else:
    DbCache, KeySpace, WriteMapping, Snapshot, TransactionContext = import_at_call(
        globals(),
        DbCache="shale.engine.db_cache",
        KeySpace="shale.engine.mapping",
        WriteMapping="shale.engine.mapping",
        Snapshot="shale.engine.read.snapshot",
        TransactionContext="shale.engine.txn.context",
    )

K = TypeVar("K")
V = TypeVar("V")


class Db(MadeByOpen, Reads, DatabaseLifecycle):
    """The one writer of a database.  Made by ``open``; used from one event loop.

    A write returns when it is in memory and visible to reads; its handle waits until it is durable.  After another
    writer has taken over, every call raises ``FencedError``.
    """

    __slots__ = ("_closing", "_is_interrupted", "_pipeline", "_services", "_stores", "_writer", "status")

    def __init__(self, writer: Writer, stores: DatabaseStores, services: "EmbeddedServices | None" = None) -> None:
        super().__init__(writer.views, writer.options.enforce_visible_range)
        self._writer = writer
        self._pipeline = writer.pipeline
        self._stores = stores
        self._services = services
        self._closing = anyio.Lock()
        self.status = DbStatus(writer)
        """The state of this writer: sequence numbers, manifest, memory, failure."""
        self._is_interrupted = False
        pipeline = writer.pipeline
        writer.instruments.export_requests(
            {
                "get": lambda: self.gets,
                "scan": lambda: self.scans,
                "put": lambda: pipeline.buffers.rows_written - pipeline.deletes - pipeline.merges - pipeline.batch_rows,
                "merge": lambda: pipeline.merges,
                "delete": lambda: pipeline.deletes,
                "write": lambda: pipeline.write_batches,
                "flush": lambda: writer.flushes,
            }
        )

    @classmethod
    def open(
        cls,
        where: UrlOrPath | None = None,
        *,
        store: UrlOrPath | ObjectStore | None = None,
        path: UrlOrPath | None = None,
        options: DbOptions | None = None,
        **keywords: Unpack[DbOpenOptions],
    ) -> OpenContext["Db"]:
        """Open a database for writing; create it if there is none.  Await the result, or use it with ``async with``.

        Args:
            where: the database's URL; with ``store``, its path in that store.
            store: URL of a store, or a store object.
            path: the same as ``where``, for use with ``store``.
            options: all options of the writer in one value, instead of single ones.
            keywords: single options, see ``DbOpenOptions``: ``wal_store``, ``env``, ``metrics``, ``store_options``,
                ``block_transformer``, and those of ``DbOptions``, with durations as ``"250ms"`` or ``timedelta`` and
                sizes as ``"64MiB"``.

        Raises:
            UnknownOption: there is no option of that name; this is a ``TypeError``, too.
            InvalidRequestError: an impossible setting.
            InvalidDbState: half built or destroyed.
            FencedError: a newer writer claimed meanwhile.
        """
        chosen = choose_options(DbOptions, options, keywords)
        location, env, metrics = OpenArguments.of(where, store, path, keywords)
        return OpenContext(cls._open, location, chosen, env, metrics)

    @classmethod
    async def _open(cls, where: DatabaseLocation, options: DbOptions, env: Env | None, metrics: Metrics | None) -> Self:
        return cls(*await open_for_writing(where, options, env or Env.system(), metrics or Metrics()))

    @property
    def cache(self) -> "DbCache":
        """The cache of this database's SSTs, to warm or evict key ranges."""
        return DbCache(self._resolve_point)

    def put(
        self,
        key: BytesLike,
        value: BytesLike,
        *,
        ttl: Ttl = None,
        expire_at: Timestamp | None = None,
        seq: int | None = None,
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Write a value; it replaces the key's previous value.

        Args:
            key: 1 to ``max_key_bytes`` bytes.
            value: at most 4 GiB.
            ttl: lifetime; ``None``: the database's default (no expiry unless set); ``shale.NEVER``: no expiry.
            expire_at: the time of expiry instead: a ``datetime`` with a time zone, or milliseconds since 1970.
            seq: the sequence number, above all others; by default the next one.

        Raises:
            InvalidRequestError: an impossible key, value or lifetime; nothing was written.
            InvalidSequenceNumber: ``seq`` is not above the last one; nothing was written.
            InvalidClockTick: the wall clock is far below the database's newest commit time.
            FencedError, ClosedError: this writer has been fenced or closed.
        """
        if ttl is None and expire_at is None and seq is None:
            return self._pipeline.put(key, value)
        return self._pipeline.put_with_options(key, value, ttl, expire_at, seq)

    def delete(self, key: BytesLike, *, seq: int | None = None) -> Coroutine[Any, Any, WriteHandle]:
        """Delete a key; the key need not exist.  Argument and errors are those of ``put``."""
        return self._pipeline.delete(key, seq)

    def merge(
        self,
        key: BytesLike,
        operand: BytesLike,
        *,
        ttl: Ttl = None,
        expire_at: Timestamp | None = None,
        seq: int | None = None,
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Add a merge operand; reads, flushes and compactions fold it into the value.

        Arguments and errors are those of ``put``.

        Raises:
            MergeOperatorMissing: the database was opened without an operator.
            MergeOperatorFailed: the operator cannot fold the operand; nothing was written.
        """
        return self._pipeline.merge(key, operand, ttl, expire_at, seq)

    def write(self, batch: WriteBatch, *, seq: int | None = None) -> Coroutine[Any, Any, WriteHandle]:
        """Write a batch: its writes become visible and durable together.  Raises like ``put``.

        Args:
            batch: the writes.
            seq: the sequence number, above all others; by default the next one.

        Raises:
            InvalidRequestError: the batch is empty.
            InvalidSequenceNumber: ``seq`` is not above the last one; nothing was written.
            MergeOperatorMissing: the batch merges, and the database was opened without an operator.
            IncompatibleMergeTtls: the batch merges a key with several lifetimes.
            MergeOperatorFailed: the operator raised an error.
        """
        return self._pipeline.write(require_batch(batch), seq)

    async def write_arrow(
        self,
        rows: Any,
        *,
        key: str = "key",
        value: str = "value",
        ttl: Ttl = None,
        expire_at: Timestamp | None = None,
        rows_per_commit: int | None = None,
    ) -> WriteHandle:
        """Write the rows of Arrow columns; much faster than single puts, because no row becomes a Python object.

        Args:
            rows: a ``pyarrow.Table`` or ``RecordBatch``, anything with the Arrow stream interface (data frames,
                readers), or an iterable of such.
            key: name of the column of keys, binary or string.
            value: name of the column of values.
            ttl: lifetime of all rows.
            expire_at: the time of expiry instead; see ``put``.
            rows_per_commit: split the rows into commits of this size, which become visible one after the other; between
                them memory stays within ``max_unflushed_bytes``.  ``None``: one commit.

        Returns:
            The handle of the last commit; it is durable only when all commits are.

        If a key occurs several times in one commit, its last row counts.  Raises like ``put``, and

        Raises:
            InvalidRequestError: a column is missing, has another type or has nulls, a key is impossible, there are no
                rows, or one commit is larger than ``max_unflushed_bytes``.  Earlier commits stay written.
        """
        lifetime = resolve_lifetime(ttl, expire_at, self._writer.options.default_ttl_ms)
        from shale.engine.arrow.rows import ArrowSource
        from shale.engine.arrow.write import write_arrow

        return await write_arrow(
            self._pipeline,
            ArrowSource(data=rows, key=key, value=value, rows_per_commit=rows_per_commit),
            lifetime=lifetime,
            options=self._writer.options,
            env=self._writer.env,
        )

    def new_batch(self) -> WriteBatch:
        """Return an empty batch with the limits of this database."""
        return WriteBatch(max_key_bytes=self._writer.options.max_key_bytes)

    def batch(self) -> BatchContext:
        """Collect a batch and write it at the end of the block; an error in the block discards it."""
        return BatchContext(self.new_batch(), self._pipeline.write)

    @overload
    def mapping(self, *, codec: Codec[V], prefix: BytesLike = b"") -> "WriteMapping[bytes, V]": ...

    @overload
    def mapping(self, *, codec: Codec[V], key_codec: Codec[K], prefix: BytesLike = b"") -> "WriteMapping[K, V]": ...

    def mapping(self, *, codec: Codec[Any], key_codec: Codec[Any] = BYTES, prefix: BytesLike = b"") -> Any:
        """Return the rows with a key prefix as a mapping from objects to objects.

        Args:
            codec: encodes the values; see ``shale.codecs``.
            key_codec: encodes the keys after the prefix; by default keys are bytes.
            prefix: the prefix of all keys; not part of the key objects.
        """
        return WriteMapping(self, KeySpace(prefix, key_codec, codec))

    def snapshot(self, *, durable: bool = False) -> "OpenContext[Snapshot]":
        """Take a snapshot: await the result, or enter it with ``async with``.

        Args:
            durable: include only durable rows.
        """
        return OpenContext(self._snapshot, durable)

    async def _snapshot(self, durable: bool) -> "Snapshot":
        writer = self._writer
        writer.check_readable()
        return Snapshot(writer, writer.durability.durable_seq if durable else self._pipeline.committed_seq)

    def transaction(self, isolation: "Isolation" = "snapshot") -> "TransactionContext":
        """Begin a transaction: await the result, or use ``async with``, which commits, or rolls back after an error.

        Args:
            isolation: ``snapshot``: the commit raises ``TransactionConflict`` if another writer wrote a key that the
                transaction writes; ``serializable``: also if another writer wrote what the transaction has read.

        Raises:
            InvalidRequestError: another value of ``isolation``.
        """
        if isolation not in ("snapshot", "serializable"):
            raise invalid_choice("isolation", isolation, ("snapshot", "serializable"))
        return TransactionContext(self._writer, serializable=isolation == "serializable")

    async def flush(self, kind: FlushType | str | None = None) -> None:
        """Make all rows written so far durable.

        Args:
            kind: ``wal`` (the default with the WAL enabled), or ``memtable``: flush to L0.

        Raises:
            WalDisabled: a WAL flush without a WAL.
            FencedError: another writer took over; it is unknown which rows survive.
        """
        self._writer.check_readable()
        await self._writer.flush(self.status.quickest_flush if kind is None else FlushType.of(kind))

    async def checkpoint(
        self,
        *,
        name: str | None = None,
        lifetime: Duration | None = None,
        scope: CheckpointScope | str = CheckpointScope.ALL,
        source: UUID | str | None = None,
        checkpoint_id: UUID | str | None = None,
    ) -> Checkpoint:
        """Create a checkpoint, which keeps the state of the database from being garbage collected.

        Args:
            name: a label; need not be unique.
            lifetime: ``None``: until the checkpoint is deleted.
            scope: ``all``: flush all rows written so far and include them; while L0 is full, from the WAL, and without
                a WAL only the flushed ones.  ``durable``: include only durable rows, without a flush.
            source: the id or name of a checkpoint whose state the new one keeps; nothing is flushed.
            checkpoint_id: the id of the new checkpoint, for calls that may be repeated: an existing checkpoint with
                this id is returned.

        Raises:
            InvalidRequestError: an unknown scope, or a name that cannot be stored or is reserved for writers.
            InvalidCheckpointLifetime: not positive, or too long to be stored.
            CheckpointMissing: the source does not exist or has expired.
            AmbiguousCheckpoint: several checkpoints have the name of the source.
        """
        self._writer.check_readable()
        lifetime_ms = parse_lifetime_ms(lifetime)
        request = CheckpointRequest(
            scope=CheckpointScope.of(scope),
            lifetime_ms=lifetime_ms,
            name=require_name(name),
            source=None if source is None else require_checkpoint_reference(source, what="source"),
            checkpoint_id=None if checkpoint_id is None else parse_checkpoint_id(checkpoint_id),
        )
        return await self._writer.checkpoint(request)

    async def refresh(self) -> None:
        """Read the newest manifest now instead of at the next poll."""
        self._writer.check_readable()
        await self._writer.poller.refresh()

    async def close(self, flush: FlushType | str | None = None) -> None:
        """Flush and close the database; a second call does nothing.

        Args:
            flush: ``memtable`` (the default), ``wal`` (faster, but the next open replays the WAL) or ``none`` (rows
                that are not durable are lost).

        Raises:
            ShaleError: the writer had failed, or failed while closing.
            ClosedError: an earlier call was cancelled before what it was to flush was durable.
        """
        kind = FlushType.MEMTABLE if flush is None else FlushType.of(flush)
        async with self._closing:
            if self._writer.is_closed:
                if self._is_interrupted:
                    raise ClosedError(f"closing was interrupted: rows above seq {self.status.durable_seq} may be lost")
                return
            self._is_interrupted = kind is not FlushType.NONE and self.status.durable_seq < self.status.last_seq
            try:
                if self._services is not None:
                    await self._services.stop()
                await self._writer.close(kind)
                self._is_interrupted = False
            except ShaleError:
                self._is_interrupted = False  # the caller gets the error
                raise
            finally:
                await self._stores.aclose()

    def _shown_state(self) -> Mapping[str, object]:
        return writer_state(self._writer)

    def _read_point(self, durability: Durability) -> ReadPoint:
        writer = self._writer
        if writer.durability.problem is not None or writer.is_closed:
            writer.durability.check_open()
        if durability == "memory":
            return writer.views.point
        return writer.views.point._replace(
            max_seq=writer.durability.durable_seq if checked_durability(durability) else None
        )

    def _scan_point(self, durability: Durability) -> ReadPoint:
        point = self._read_point(durability)
        if point.max_seq is not None:
            return point
        return ReadPoint(point.view, self._pipeline.committed_seq, point.view_provider)

    def _clock_ms(self) -> int:
        return self._writer.clock_ms()
