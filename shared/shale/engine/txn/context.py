"""What ``Db.transaction()`` returns: the beginning of a transaction, and its end."""

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Literal, TypeAlias

from shale.engine.open_context import PendingContext
from shale.engine.txn.transaction import Transaction
from shale.engine.write.writer import Writer

Isolation: TypeAlias = Literal["snapshot", "serializable"]


class TransactionContext(PendingContext):
    """What ``Db.transaction`` returns: await it for the transaction, or enter it with ``async with``.

    The end of the block commits the transaction, or rolls it back after an error; a transaction that is over stays so.

    Attributes:
        tells_own_lifetimes: whether reads tell when the transaction's own rows expire; those of SlateDB do not.
    """

    def __init__(self, writer: Writer, *, serializable: bool) -> None:
        self._writer = writer
        self._is_serializable = serializable
        self._transaction: Transaction | None = None
        self.tells_own_lifetimes = True

    def begun(self) -> Coroutine[Any, Any, Transaction]:
        """Return the transaction, as awaiting this object does; for callers that need a coroutine."""
        self._is_used = True
        return self._begun()

    async def _begun(self) -> Transaction:
        self._writer.check_readable()
        return Transaction(
            self._writer, serializable=self._is_serializable, tells_own_lifetimes=self.tells_own_lifetimes
        )

    def __await__(self) -> Generator[Any, None, Transaction]:
        return self.begun().__await__()

    async def __aenter__(self) -> Transaction:
        self._transaction = await self
        return self._transaction

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is None or transaction.is_over:
            return
        if error is None:
            await transaction.commit()
        else:
            await transaction.rollback()

    def _shown(self) -> tuple[str, str]:
        return "db.transaction()", "tx"
