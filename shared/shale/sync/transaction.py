"""A transaction whose calls block."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self
from uuid import UUID

from shale.engine import transaction
from shale.engine.batch import BytesLike, WriteBatch
from shale.engine.lifetime import Moment, Ttl
from shale.sync.reads import BlockingReads
from shale.sync.write_handle import WriteHandle


class Transaction(BlockingReads[transaction.Transaction]):
    """Made by ``Db.transaction``; see ``shale.Transaction``.  One thread at a time uses it.

    With ``with`` it is committed on leaving the block, or rolled back if the block has raised; one that is over is
    left alone.
    """

    @property
    def seq(self) -> int:
        """The newest commit that it sees."""
        return self._inner.seq

    @property
    def id(self) -> UUID:
        """Its name."""
        return self._inner.id

    @property
    def is_over(self) -> bool:
        """Whether it was committed or rolled back."""
        return self._inner.is_over

    def put(self, key: BytesLike, value: BytesLike, *, ttl: Ttl = None, expire_at: Moment | None = None) -> None:
        """Write a value with the commit; see ``shale.Db.put``."""
        self._inner.put(key, value, ttl=ttl, expire_at=expire_at)

    def delete(self, key: BytesLike) -> None:
        """Remove a key with the commit."""
        self._inner.delete(key)

    def merge(self, key: BytesLike, operand: BytesLike, *, ttl: Ttl = None, expire_at: Moment | None = None) -> None:
        """Add an operand for the merge operator with the commit; see ``shale.Db.merge``."""
        self._inner.merge(key, operand, ttl=ttl, expire_at=expire_at)

    def write(self, batch: WriteBatch) -> None:
        """Do all that a batch holds with the commit; see ``shale.Transaction.write``."""
        self._inner.write(batch)

    def mark_read(self, keys: Iterable[BytesLike]) -> None:
        """Let the commit fail if somebody writes one of these keys, at every isolation level."""
        self._inner.mark_read(keys)

    def unmark_write(self, keys: Iterable[BytesLike]) -> None:
        """Let writes of these keys, by this transaction, conflict with nobody else's."""
        self._inner.unmark_write(keys)

    def commit(self, *, durable: bool = False, seq: int | None = None) -> WriteHandle | None:
        """Make the writes visible to everybody, as one commit; see ``shale.Transaction.commit``."""
        handle = self._background.call(self._inner.commit(durable=durable, seq=seq))
        return None if handle is None else WriteHandle(handle, self._background)

    def rollback(self) -> None:
        """Forget the writes.

        Raises:
            InvalidRequestError: the transaction is over.
        """
        self._background.call(self._inner.rollback())

    def close(self) -> None:
        """Roll back unless it is over; may be called again."""
        self._background.call(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_over:
            return
        if error is None:
            self.commit()
        else:
            self.rollback()
