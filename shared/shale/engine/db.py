"""``Db``: a database open for reading and writing, a thin front (docs/architecture.md)."""

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar, overload
from uuid import UUID

import anyio

from shale.codecs.codec import Codec
from shale.codecs.plain import BYTES
from shale.engine.batch import BytesLike, WriteBatch
from shale.engine.checkpointing import CheckpointScope
from shale.engine.db_cache import DbCache
from shale.engine.lifetime import Moment, Ttl, lifetime_of
from shale.engine.mapping import KeySpace, WriteMapping
from shale.engine.opening import Opening
from shale.engine.options import DbOptions, FlushType
from shale.engine.read_point import Durability, ReadPoint
from shale.engine.reads import Reads, checked_durability
from shale.engine.seq_times import seq_at, time_of
from shale.engine.settings_values import Duration, checkpoint_id_of, parse_lifetime_ms
from shale.engine.snapshot import Snapshot
from shale.engine.transaction import Beginning
from shale.engine.where import Stores, Where, resolve
from shale.engine.write_handle import WriteHandle
from shale.engine.writer import Writer
from shale.engine.writer_open import open_writer
from shale.env import Env
from shale.errors import ClosedError, InvalidRequestError, ShaleError
from shale.format.transform import BlockTransformer
from shale.protocol.checkpoint_names import checkpoint_reference
from shale.protocol.checkpoints import require_name
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Checkpoint, Manifest

K = TypeVar("K")
V = TypeVar("V")


class Db(Reads):
    """The one writer of a database.  Made by ``open``; used from one event loop.

    A write returns when it is in memory and readable; its handle says when it is durable.  After another writer has
    taken over every call raises ``FencedError``.
    """

    __slots__ = ("_accept", "_closing", "_is_interrupted", "_stores", "_writer")

    def __init__(self, writer: Writer, stores: Stores) -> None:
        super().__init__(writer.views, writer.options.enforce_visible_range)
        self._writer = writer
        self._accept = writer.acceptor
        self._stores = stores
        self._closing = anyio.Lock()
        self._is_interrupted = False
        accept = writer.acceptor
        writer.instruments.export_requests(
            {
                "get": lambda: self.gets,
                "scan": lambda: self.scans,
                "put": lambda: accept.write_ops - accept.deletes - accept.merges - accept.batch_rows,
                "merge": lambda: accept.merges,
                "delete": lambda: accept.deletes,
                "write": lambda: accept.write_batches,
                "flush": lambda: writer.flushes,
            }
        )

    @classmethod
    def open(
        cls,
        where: str | None = None,
        *,
        store: str | ObjectStore | None = None,
        path: str | None = None,
        wal_store: str | ObjectStore | None = None,
        env: Env | None = None,
        metrics: Metrics | None = None,
        store_options: StoreOptions | None = None,
        block_transformer: BlockTransformer | None = None,
        options: DbOptions | None = None,
        **settings: Any,
    ) -> Opening["Db"]:
        """Open a database for writing, creating it if there is none.  Await it, or use it with ``async with``.

        Args:
            where: the database's URL; with ``store`` its path in that store.
            store: URL of a store, or a store object.
            path: the same as ``where``, for use with ``store``.
            wal_store: where the WAL lives, if not with the rest.
            env: the outside world; the real one by default.
            metrics: counts here; by default nowhere that is seen.
            store_options: how to talk to the store.
            block_transformer: what all of SSTs and WAL files goes through, such as ``AesGcm``; every process that reads
                or compacts the database needs the same.
            options: all options of the engine at once, or
            settings: single ones, see ``DbOptions``; durations as ``"250ms"`` or ``timedelta``, sizes as ``"64MiB"``.

        Raises:
            InvalidRequestError: an impossible setting.
            InvalidDbState: half built or destroyed.
            FencedError: a newer writer came in between.
        """
        if options is not None and settings:
            raise InvalidRequestError(f"options and {', '.join(settings)} were given: use one or the other")
        chosen = options if options is not None else DbOptions.from_keywords(settings)
        location = resolve(
            where,
            store=store,
            path=path,
            wal_store=wal_store,
            store_options=store_options,
            block_transformer=block_transformer,
        )
        return Opening(cls._open, location, chosen, env, metrics)

    @classmethod
    async def _open(cls, where: Where, options: DbOptions, env: Env | None, metrics: Metrics | None) -> "Db":
        env = env if env is not None else Env.system()
        metrics = metrics if metrics is not None else Metrics()
        stores = where.connect(env, metrics, component="writer")
        try:
            writer = await open_writer(
                stores.main,
                where.root,
                options,
                env=env,
                metrics=metrics,
                wal_store=stores.wal,
                transformer=where.block_transformer,
            )
        except BaseException:
            await stores.aclose()
            raise
        return cls(writer, stores)

    @property
    def writer_epoch(self) -> int:
        """Which generation of writers this one is."""
        return self._writer.manifest.epoch

    @property
    def manifest(self) -> Manifest:
        """The newest manifest that this writer knows."""
        return self._writer.manifest.current

    @property
    def manifest_id(self) -> int:
        """The version of ``manifest``."""
        return self._writer.manifest.id

    @property
    def last_seq(self) -> int:
        """The newest sequence number of a commit."""
        return self._accept.committed_seq

    @property
    def durable_seq(self) -> int:
        """Everything up to this sequence number is durable."""
        return self._writer.progress.durable_seq

    @property
    def segments(self) -> list[bytes]:
        """The prefixes of all segments, those of rows in memory included; none in a database without segments."""
        return [] if self._accept.route is None else self._accept.route.known

    @property
    def rows_written(self) -> int:
        """Rows that this handle has accepted, tombstones and operands included."""
        return self._accept.write_ops

    @property
    def unflushed_bytes(self) -> int:
        """Estimated bytes in memtables and WAL buffer; writes wait while it is at ``max_unflushed_bytes``."""
        return self._accept.unflushed_bytes

    @property
    def is_full(self) -> bool:
        """Whether writes wait, because ``unflushed_bytes`` is at its limit."""
        return self._writer.pressure.is_full

    @property
    def cache(self) -> DbCache:
        """What is kept in memory and on disk of its SSTs, to be filled and emptied by hand."""
        return DbCache(self._settled_point)

    @property
    def problem(self) -> ShaleError | None:
        """Why this writer is none any more; ``None`` while it is."""
        return self._writer.progress.problem

    async def failed(self) -> ShaleError:
        """Wait until the writer has failed (for instance: was fenced), or was closed, and return why."""
        return await self._writer.progress.until_failed()

    def put(
        self, key: BytesLike, value: BytesLike, *, ttl: Ttl = None, expire_at: Moment | None = None
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Write a value; it replaces what the key had.

        Args:
            key: 1 to ``max_key_bytes`` bytes.
            value: at most 4 GiB.
            ttl: lifetime; ``None`` is the database's default, which is for ever unless set; ``shale.NEVER`` is for
                ever.
            expire_at: the end of its life instead: a ``datetime`` with a time zone, or milliseconds since 1970.

        Raises:
            InvalidRequestError: an impossible key, value or lifetime; nothing was written.
            InvalidClockTick: the clock is far behind the database's.
            FencedError, ClosedError: this writer is none any more.
        """
        if ttl is None and expire_at is None:
            return self._accept.put(key, value)
        return self._accept.put_living(key, value, ttl, expire_at)

    def delete(self, key: BytesLike) -> Coroutine[Any, Any, WriteHandle]:
        """Remove a key, whether or not it is there; raises like ``put``."""
        return self._accept.delete(key)

    def merge(
        self, key: BytesLike, operand: BytesLike, *, ttl: Ttl = None, expire_at: Moment | None = None
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Add an operand for the merge operator, which sees it when the key is read, flushed or compacted.

        Arguments and errors are those of ``put``.

        Raises:
            MergeOperatorMissing: the database was opened without an operator.
            MergeOperatorFailed: the operator refuses the operand; nothing was written.
        """
        return self._accept.merge(key, operand, ttl, expire_at)

    def write(self, batch: WriteBatch, *, seq: int | None = None) -> Coroutine[Any, Any, WriteHandle]:
        """Write a batch: all of it becomes visible and durable as one; raises like ``put``.

        Args:
            batch: what to write.
            seq: its sequence number, above all others; by default the next one.

        Raises:
            InvalidRequestError: it is empty.
            InvalidSequenceNumber: there is the same or a higher number already; nothing was written.
            MergeOperatorMissing: it merges, and the database was opened without an operator.
            IncompatibleMergeTtls: it merges a key with several lifetimes.
            MergeOperatorFailed: the operator did.
        """
        return self._accept.write(batch, seq)

    async def write_arrow(
        self,
        rows: Any,
        *,
        key: str = "key",
        value: str = "value",
        ttl: Ttl = None,
        expire_at: Moment | None = None,
        rows_per_commit: int | None = None,
    ) -> WriteHandle:
        """Write the rows of Arrow columns: many times faster than one by one, because no row becomes an object.

        Args:
            rows: a ``pyarrow.Table`` or ``RecordBatch``, anything with the Arrow stream interface (data frames,
                readers), or an iterable of such.
            key: name of the column of keys, binary or string.
            value: name of the column of values.
            ttl: lifetime of all rows, and
            expire_at: the moment when they expire instead; see ``put``.
            rows_per_commit: splits what is written into commits of so many rows, which become visible one after the
                other, and between which memory is kept within ``max_unflushed_bytes``.  ``None``: one commit.

        Returns:
            The handle of the last commit, which is durable only when all are.

        Of several rows with one key in a commit the last counts.  Raises like ``put``, and

        Raises:
            InvalidRequestError: a column is missing, of another type or has nulls, a key is impossible, there are no
                rows, or one commit is larger than ``max_unflushed_bytes``.  Commits before it stay written.
        """
        lifetime = lifetime_of(ttl, expire_at, self._writer.options.default_ttl_ms)
        return await self._writer.write_arrow(
            rows, key=key, value=value, lifetime=lifetime, rows_per_commit=rows_per_commit
        )

    def new_batch(self) -> WriteBatch:
        """An empty batch with the limits of this database."""
        return WriteBatch(max_key_bytes=self._writer.options.max_key_bytes)

    @asynccontextmanager
    async def batch(self) -> AsyncIterator[WriteBatch]:
        """Collect a batch that is written on leaving the block, or not at all after an error."""
        batch = self.new_batch()
        yield batch
        if len(batch):
            await self._accept.write(batch)

    @overload
    def mapping(self, *, codec: Codec[V], prefix: BytesLike = b"") -> WriteMapping[bytes, V]: ...

    @overload
    def mapping(self, *, codec: Codec[V], key_codec: Codec[K], prefix: BytesLike = b"") -> WriteMapping[K, V]: ...

    def mapping(self, *, codec: Codec[Any], key_codec: Codec[Any] = BYTES, prefix: BytesLike = b"") -> Any:
        """The rows below a prefix as a mapping from objects to objects, to be read and written.

        Args:
            codec: of the values, see ``shale.codecs``.
            key_codec: of the keys behind the prefix; bytes as they are by default.
            prefix: of all its keys, not part of the objects.
        """
        return WriteMapping(self, KeySpace(bytes(prefix), key_codec, codec))

    def snapshot(self, *, durable: bool = False) -> Opening[Snapshot]:
        """The database as it is when this is awaited or entered with ``async with``, to be read later.

        Args:
            durable: only what a crash cannot undo.
        """
        return Opening(self._snapshot, durable)

    async def _snapshot(self, durable: bool) -> Snapshot:
        writer = self._writer
        writer.check_readable()
        return Snapshot(writer, writer.progress.durable_seq if durable else self._accept.committed_seq)

    def transaction(self, isolation: str = "snapshot") -> Beginning:
        """Begin a transaction: await it, or use it with ``async with``, which commits, or rolls back after an error.

        Args:
            isolation: ``snapshot``: the commit fails with ``TransactionConflict`` if somebody wrote a key that it
                writes; ``serializable``: also if somebody wrote what it has read.

        Raises:
            InvalidRequestError: neither of them.
        """
        if isolation not in ("snapshot", "serializable"):
            raise InvalidRequestError(f"isolation={isolation!r}: must be 'snapshot' or 'serializable'")
        return Beginning(self._writer, serializable=isolation == "serializable")

    def seq_at(self, time: Moment, *, round_up: bool = False) -> int | None:
        """The sequence number that the database had reached at a time; points are known about a minute apart.

        Args:
            time: a ``datetime`` with a time zone, or milliseconds since 1970.
            round_up: of the first known point at or after the time, instead of the last one at or before.

        Returns:
            ``None`` if there is no such point.
        """
        return seq_at(self._writer.seq_times(), time, round_up=round_up)

    def time_of(self, seq: int, *, round_up: bool = False) -> datetime | None:
        """When the database had reached a sequence number, to the second; see ``seq_at``."""
        return time_of(self._writer.seq_times(), seq, round_up=round_up)

    @property
    def quickest_flush(self) -> FlushType:
        """The flush that makes writes durable soonest: of the WAL, while that is enabled."""
        return FlushType.WAL if self._writer.options.wal_enabled else FlushType.MEMTABLE

    async def flush(self, kind: FlushType | str | None = None) -> None:
        """Make everything that is written now durable.

        Args:
            kind: ``wal`` (the default while the WAL is enabled) or ``memtable``, which also brings it to L0.

        Raises:
            WalDisabled: a WAL flush without a WAL.
            FencedError: another writer took over; the outcome is unknown.
        """
        self._writer.check_readable()
        await self._writer.flush(_flush_type(kind, self.quickest_flush))

    async def checkpoint(
        self,
        *,
        name: str | None = None,
        lifetime: Duration | None = None,
        scope: CheckpointScope | str = CheckpointScope.ALL,
        source: UUID | str | None = None,
        checkpoint_id: UUID | str | None = None,
    ) -> Checkpoint:
        """Keep the state of the database from being collected.

        Args:
            name: for people; need not be unique.
            lifetime: ``None`` is until it is deleted.
            scope: ``all``: everything that is written now, which is flushed for it, and waited for while L0 is full
                (at most ``checkpoint_flush_timeout``, then what is durable); ``durable``: at once, what is durable.
            source: keep what this checkpoint, named by its id or name, keeps instead; nothing is flushed then.
            checkpoint_id: the id of the new one, drawn by the caller so that the call can be repeated: if it is there
                already, it is returned as it is.

        Raises:
            InvalidRequestError: no such scope; the name cannot be stored, or is that of a writer's own checkpoint.
            InvalidCheckpointLifetime: not positive, or beyond what can be stored.
            CheckpointMissing: the source is not there, or has expired.
            AmbiguousCheckpoint: several have the name of the source.
        """
        self._writer.check_readable()
        lifetime_ms = parse_lifetime_ms(lifetime)
        return await self._writer.checkpointing.create(
            CheckpointScope.of(scope),
            lifetime_ms=lifetime_ms,
            name=require_name(name),
            source=None if source is None else checkpoint_reference(source, what="source"),
            checkpoint_id=None if checkpoint_id is None else checkpoint_id_of(checkpoint_id),
        )

    async def refresh(self) -> None:
        """Take over now what other processes have committed, instead of at the next poll."""
        self._writer.check_readable()
        await self._writer.flusher.refresh()

    async def close(self, flush: FlushType | str | None = None) -> None:
        """Flush, and let go of the database; a closed one stays closed and may be closed again.

        Args:
            flush: ``memtable`` (the default), ``wal`` (faster, a longer replay) or ``none`` (rows that are not durable
                are lost).

        Raises:
            ShaleError: the writer had failed, or failed while closing.
            ClosedError: an earlier call was cancelled before what it was to flush was durable.
        """
        kind = _flush_type(flush, FlushType.MEMTABLE)
        async with self._closing:
            if self._writer.is_closed:
                if self._is_interrupted:
                    raise ClosedError(f"closing was interrupted: rows above seq {self.durable_seq} may be lost")
                return
            self._is_interrupted = kind is not FlushType.NONE and self.durable_seq < self.last_seq
            try:
                await self._writer.close(kind)
                self._is_interrupted = False
            except ShaleError:
                self._is_interrupted = False  # who called has been told
                raise
            finally:
                await self._stores.aclose()

    def _read_point(self, durability: Durability) -> ReadPoint:
        writer = self._writer
        if writer.progress.problem is not None or writer.is_closed:
            writer.pressure.check()
        if durability == "memory":
            return writer.views.point
        return replace(
            writer.views.point, max_seq=writer.progress.durable_seq if checked_durability(durability) else None
        )

    def _scan_point(self, durability: Durability) -> ReadPoint:
        point = self._read_point(durability)
        return point if point.max_seq is not None else ReadPoint(point.view, self._accept.committed_seq, point.keeper)

    def _clock_ms(self) -> int:
        return self._writer.clock_ms()


def _flush_type(kind: FlushType | str | None, default: FlushType) -> FlushType:
    if kind is None:
        return default
    try:
        return FlushType(kind)
    except ValueError:
        raise InvalidRequestError(f"{kind!r} is none of memtable, wal, none") from None
