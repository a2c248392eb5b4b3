"""``shale.sync.Db``: a database open for reading and writing, whose calls block."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeVar, overload
from uuid import UUID

from shale.codecs.codec import Codec
from shale.codecs.plain import BYTES
from shale.engine import db
from shale.engine.batch import BytesLike, WriteBatch
from shale.engine.checkpointing import CheckpointScope
from shale.engine.lifetime import Moment, Ttl
from shale.engine.mapping import KeySpace
from shale.engine.options import DbOptions, FlushType
from shale.engine.settings_values import Duration
from shale.env import Env
from shale.errors import ShaleError
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.sync.background import Background, background
from shale.sync.db_cache import DbCache
from shale.sync.mapping import WriteMapping
from shale.sync.reads import BlockingReads
from shale.sync.snapshot import Snapshot
from shale.sync.transaction import Transaction
from shale.sync.write_handle import WriteHandle
from shale.telemetry.metrics import Metrics
from shale.types import Checkpoint, Manifest

K = TypeVar("K")
V = TypeVar("V")


class Db(BlockingReads[db.Db]):
    """The one writer of a database; see ``shale.Db``.  Made by ``open``, and open until ``close``."""

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
        options: DbOptions | None = None,
        **settings: Any,
    ) -> Self:
        """Open a database for writing, creating it if there is none; close it, or use it with ``with``.

        Arguments and errors are those of ``shale.Db.open``.
        """
        opening = db.Db.open(
            where,
            store=store,
            path=path,
            wal_store=wal_store,
            env=env,
            metrics=metrics,
            store_options=store_options,
            options=options,
            **settings,
        )
        loop = background()
        return cls(loop.call(opening.opened(), undo=_dropped), loop)

    def __init__(self, inner: db.Db, loop: Background) -> None:
        super().__init__(inner, loop)
        loop.keep(self._inner, partial(_closed_at_exit, inner))

    @property
    def writer_epoch(self) -> int:
        """Which generation of writers this one is."""
        return self._inner.writer_epoch

    @property
    def manifest(self) -> Manifest:
        """The newest manifest that this writer knows."""
        return self._inner.manifest

    @property
    def manifest_id(self) -> int:
        """The version of ``manifest``."""
        return self._inner.manifest_id

    @property
    def last_seq(self) -> int:
        """The newest sequence number of a commit."""
        return self._inner.last_seq

    @property
    def durable_seq(self) -> int:
        """Everything up to this sequence number is durable."""
        return self._inner.durable_seq

    @property
    def unflushed_bytes(self) -> int:
        """Estimated bytes in memtables and WAL buffer."""
        return self._background.at_once(lambda: self._inner.unflushed_bytes)

    @property
    def cache(self) -> DbCache:
        """What is kept in memory and on disk of its SSTs, to be filled and emptied by hand."""
        return DbCache(self._inner.cache, self._background)

    @property
    def problem(self) -> ShaleError | None:
        """Why this writer is none any more; ``None`` while it is."""
        return self._inner.problem

    def failed(self) -> ShaleError:
        """Wait until the writer has failed (for instance: was fenced), or was closed, and return why."""
        return self._background.call(self._inner.failed())

    def put(self, key: BytesLike, value: BytesLike, *, ttl: Ttl = None, expire_at: Moment | None = None) -> WriteHandle:
        """Write a value; see ``shale.Db.put``."""
        call = self._background.call
        return WriteHandle(call(self._inner.put(key, value, ttl=ttl, expire_at=expire_at)), self._background)

    def delete(self, key: BytesLike) -> WriteHandle:
        """Remove a key, whether or not it is there."""
        return WriteHandle(self._background.call(self._inner.delete(key)), self._background)

    def merge(
        self, key: BytesLike, operand: BytesLike, *, ttl: Ttl = None, expire_at: Moment | None = None
    ) -> WriteHandle:
        """Add an operand for the merge operator; see ``shale.Db.merge``."""
        call = self._background.call
        return WriteHandle(call(self._inner.merge(key, operand, ttl=ttl, expire_at=expire_at)), self._background)

    def write(self, batch: WriteBatch, *, seq: int | None = None) -> WriteHandle:
        """Write a batch: all of it becomes visible and durable as one; see ``shale.Db.write``."""
        return WriteHandle(self._background.call(self._inner.write(batch, seq=seq)), self._background)

    def write_arrow(
        self,
        rows: Any,
        *,
        key: str = "key",
        value: str = "value",
        ttl: Ttl = None,
        expire_at: Moment | None = None,
        rows_per_commit: int | None = None,
    ) -> WriteHandle:
        """Write the rows of Arrow columns; see ``shale.Db.write_arrow``."""
        written = self._inner.write_arrow(
            rows, key=key, value=value, ttl=ttl, expire_at=expire_at, rows_per_commit=rows_per_commit
        )
        return WriteHandle(self._background.call(written), self._background)

    @contextmanager
    def batch(self) -> Iterator[WriteBatch]:
        """Collect a batch that is written on leaving the block, or not at all after an error."""
        batch = self._inner.new_batch()
        yield batch
        if len(batch):
            self.write(batch)

    @overload
    def mapping(self, *, codec: Codec[V], prefix: BytesLike = b"") -> WriteMapping[bytes, V]: ...

    @overload
    def mapping(self, *, codec: Codec[V], key_codec: Codec[K], prefix: BytesLike = b"") -> WriteMapping[K, V]: ...

    def mapping(self, *, codec: Codec[Any], key_codec: Codec[Any] = BYTES, prefix: BytesLike = b"") -> Any:
        """The rows below a prefix as a ``MutableMapping`` from objects to objects.

        Args:
            codec: of the values, see ``shale.codecs``.
            key_codec: of the keys behind the prefix; bytes as they are by default.
            prefix: of all its keys, not part of the objects.
        """
        return WriteMapping(self, KeySpace(bytes(prefix), key_codec, codec))

    def snapshot(self, *, durable: bool = False) -> Snapshot:
        """The database as it is now, to be read later; see ``shale.Db.snapshot``."""
        return Snapshot(self._background.call(self._inner.snapshot(durable=durable).opened()), self._background)

    def transaction(self, isolation: str = "snapshot") -> Transaction:
        """Begin a transaction, to be used with ``with``; see ``shale.Db.transaction``."""
        begun = self._background.call(self._inner.transaction(isolation).begun())
        return Transaction(begun, self._background)

    def seq_at(self, time: Moment, *, round_up: bool = False) -> int | None:
        """The sequence number that the database had reached at a time; see ``shale.Db.seq_at``."""
        return self._background.at_once(partial(self._inner.seq_at, time, round_up=round_up))

    def time_of(self, seq: int, *, round_up: bool = False) -> datetime | None:
        """When the database had reached a sequence number; see ``shale.Db.time_of``."""
        return self._background.at_once(partial(self._inner.time_of, seq, round_up=round_up))

    def flush(self, kind: FlushType | str | None = None) -> None:
        """Make everything that is written now durable; see ``shale.Db.flush``."""
        self._background.call(self._inner.flush(kind))

    def checkpoint(
        self,
        *,
        name: str | None = None,
        lifetime: Duration | None = None,
        scope: CheckpointScope | str = CheckpointScope.ALL,
        source: UUID | str | None = None,
        checkpoint_id: UUID | str | None = None,
    ) -> Checkpoint:
        """Keep the state of the database from being collected; see ``shale.Db.checkpoint``."""
        making = self._inner.checkpoint(
            name=name, lifetime=lifetime, scope=scope, source=source, checkpoint_id=checkpoint_id
        )
        return self._background.call(making)

    def refresh(self) -> None:
        """Take over now what other processes have committed, instead of at the next poll."""
        self._background.call(self._inner.refresh())

    def close(self, flush: FlushType | str | None = None) -> None:
        """Flush, and let go of the database; a closed one may be closed again.  See ``shale.Db.close``."""
        if not self._background.is_over:
            self._background.forget(self._inner)
            self._background.call(self._inner.close(flush))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _dropped(inner: db.Db) -> None:
    await inner.close("none")


async def _closed_at_exit(inner: db.Db) -> None:
    """What was written reaches the WAL, if there is one; bringing it to L0 could take too long."""
    await inner.close(inner.quickest_flush)
