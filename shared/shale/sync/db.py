"""``shale.sync.Db``: a database open for reading and writing; its calls block."""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self, TypeVar, overload

from shale.codecs.codec import Codec
from shale.codecs.plain import BYTES
from shale.concurrency.blocking import BlockingOpen, blocking, blocking_as, blocking_function, forwarded
from shale.core.async_use import MadeByOpen
from shale.core.bytes_like import BytesLike
from shale.engine import db
from shale.engine.mapping import KeySpace
from shale.engine.open_context import OpenContext
from shale.engine.options import FlushType
from shale.engine.txn.context import Isolation
from shale.engine.write.batch import WriteBatch
from shale.sync.db_cache import DbCache
from shale.sync.loop_thread import LoopThread, loop_thread
from shale.sync.mapping import WriteMapping
from shale.sync.reads import BlockingReads
from shale.sync.snapshot import Snapshot
from shale.sync.status import DbStatus
from shale.sync.transaction import Transaction
from shale.sync.write_handle import WriteHandle

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


def _call(work: Coroutine[Any, Any, T]) -> T:
    return loop_thread().call(work)


class Db(MadeByOpen, BlockingReads[db.Db]):
    """The one writer of a database; see ``shale.Db``.  Made by ``open``, and open until ``close``."""

    open = BlockingOpen(db.Db.open)
    open_from_checkpoint = BlockingOpen(db.Db.open_from_checkpoint)
    refresh_checkpoint = staticmethod(blocking_function(_call, db.Db.refresh_checkpoint))
    delete_checkpoint = staticmethod(blocking_function(_call, db.Db.delete_checkpoint))
    destroy = staticmethod(blocking_function(_call, db.Db.destroy))

    @classmethod
    def _open(cls, opening: OpenContext[db.Db]) -> Self:
        loop = loop_thread()
        return cls(loop.call(opening.opened(), undo=_close_unflushed), loop)

    def __init__(self, inner: db.Db, loop: LoopThread) -> None:
        super().__init__(inner, loop)
        loop.close_at_exit(inner, partial(_close_at_exit, inner))

    @property
    def status(self) -> DbStatus:
        """The state of this writer: sequence numbers, manifest, memory, failure."""
        return DbStatus(self._inner.status, self._run)

    @property
    def cache(self) -> DbCache:
        """What is kept in memory and on disk of its SSTs, to be filled and emptied by hand."""
        return DbCache(self._inner.cache, self._run)

    put = blocking_as(WriteHandle, db.Db.put)
    delete = blocking_as(WriteHandle, db.Db.delete)
    merge = blocking_as(WriteHandle, db.Db.merge)
    write = blocking_as(WriteHandle, db.Db.write)
    write_arrow = blocking_as(WriteHandle, db.Db.write_arrow)

    new_batch = forwarded(db.Db.new_batch)

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
        """Return the rows below a prefix as a ``MutableMapping`` from objects to objects; see ``shale.Db.mapping``."""
        return WriteMapping(self, KeySpace(prefix, key_codec, codec))

    def snapshot(self, *, durable: bool = False) -> Snapshot:
        """Return a snapshot of the database; see ``shale.Db.snapshot``."""
        return Snapshot(self._run(self._inner.snapshot(durable=durable).opened()), self._loop)

    def transaction(self, isolation: Isolation = "snapshot") -> Transaction:
        """Begin a transaction, to be used with ``with``; see ``shale.Db.transaction``."""
        return Transaction(self._run(self._inner.transaction(isolation).begun()), self._loop)

    flush = blocking(db.Db.flush)
    checkpoint = blocking(db.Db.checkpoint)
    refresh = blocking(db.Db.refresh)

    def close(self, flush: FlushType | str | None = None) -> None:
        """Flush and close the database; a second call does nothing.  See ``shale.Db.close``."""
        if not self._loop.is_over:
            self._loop.unregister(self._inner)
            self._run(self._inner.close(flush))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _close_unflushed(inner: db.Db) -> None:
    await inner.close("none")


async def _close_at_exit(inner: db.Db) -> None:
    """Flush writes to the WAL, if there is one; a flush to L0 could take too long."""
    await inner.close(inner.status.quickest_flush)
