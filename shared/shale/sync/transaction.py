"""A transaction; its calls block."""

from types import TracebackType
from typing import Any, Self, TypeVar, overload
from uuid import UUID

from shale.codecs.codec import Codec
from shale.codecs.plain import BYTES
from shale.concurrency.blocking import blocking, blocking_as, forwarded, forwarded_write
from shale.core.bytes_like import BytesLike
from shale.engine.mapping import KeySpace
from shale.engine.txn import transaction
from shale.sync.mapping import WriteMapping
from shale.sync.reads import BlockingReads
from shale.sync.write_handle import handle_or_none

K = TypeVar("K")
V = TypeVar("V")


class Transaction(BlockingReads[transaction.Transaction]):
    """Made by ``Db.transaction``; see ``shale.Transaction``.  Used by one thread at a time.

    With ``with`` it is committed on leaving the block, or rolled back if the block has raised; a transaction that is
    over is left alone.
    """

    @property
    def seq(self) -> int:
        """The newest commit that it sees."""
        return self._inner.seq

    @property
    def id(self) -> UUID:
        """Identifies the transaction."""
        return self._inner.id

    @property
    def is_over(self) -> bool:
        """Whether it was committed or rolled back."""
        return self._inner.is_over

    # Only the transaction's own batch changes before the commit, so these need not run in the loop's thread.
    put = forwarded_write(transaction.Transaction.put)
    delete = forwarded_write(transaction.Transaction.delete)
    merge = forwarded_write(transaction.Transaction.merge)
    write = forwarded_write(transaction.Transaction.write)
    mark_read = forwarded(transaction.Transaction.mark_read)
    unmark_write = forwarded_write(transaction.Transaction.unmark_write)
    new_batch = forwarded(transaction.Transaction.new_batch)

    @overload
    def mapping(self, *, codec: Codec[V], prefix: BytesLike = b"") -> WriteMapping[bytes, V]: ...

    @overload
    def mapping(self, *, codec: Codec[V], key_codec: Codec[K], prefix: BytesLike = b"") -> WriteMapping[K, V]: ...

    def mapping(self, *, codec: Codec[Any], key_codec: Codec[Any] = BYTES, prefix: BytesLike = b"") -> Any:
        """Return the rows below a prefix as a ``MutableMapping``, with the transaction's writes; see ``Db.mapping``."""
        return WriteMapping(self, KeySpace(prefix, key_codec, codec))

    commit = blocking_as(handle_or_none, transaction.Transaction.commit)
    rollback = blocking(transaction.Transaction.rollback)
    close = blocking(transaction.Transaction.close)

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
