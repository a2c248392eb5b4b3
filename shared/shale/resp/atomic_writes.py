"""The writes of one client: atomic with what they read, alone or within EXEC."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from shale.engine.read.reads import Reads
from shale.engine.txn.transaction import Transaction
from shale.engine.write.batch import WriteBatch
from shale.engine.write.write_handle import WriteHandle
from shale.errors import InvalidSequenceNumber, TransactionConflict
from shale.resp.composed import ComposedWrites, Writes
from shale.resp.errors import RespError

if TYPE_CHECKING:
    from shale.engine.db import Db
    from shale.resp.backend import Backend

_ATTEMPTS_MAX = 100
"""Limit of attempts of a conditional write that conflicts with other writes."""


class AtomicWrites:
    """Writes of one client.

    ``transaction``: that of EXEC while it runs; ``None`` on a reader.
    ``composed``: counts the bytes of values that commands compose.
    ``pending_durable``: a write whose reply must wait until it is durable.
    """

    __slots__ = ("_backend", "composed", "last_write", "pending_durable", "transaction", "writer")

    def __init__(self, backend: "Backend") -> None:
        self._backend = backend
        self.writer: Db
        """Not set on a reader, which has no commands that write."""
        if backend.writer is not None:
            self.writer = backend.writer
        self.composed = ComposedWrites(backend.composed)
        self.transaction: Transaction | None = None
        self.last_write: WriteHandle | None = None
        self.pending_durable: WriteHandle | None = None

    async def atomically(self, work: Callable[[Reads, Writes], Awaitable[bytes]]) -> bytes:
        """Read and write atomically.

        Reads from memory do not wait, so usually no other write has happened in between: the next sequence number is
        still free, and a batch claims it.  Otherwise the work runs again in a transaction, which only real conflicts
        abort.

        Args:
            work: reads from its first argument and writes to its second; it is called again after a conflict, so it
                must have no other effects.

        Raises:
            RespError: every attempt conflicted with another write, or the values need too much memory.
        """
        if self.transaction is not None:
            return await work(self.transaction, self.composed.to(self.transaction))
        batch = WriteBatch(max_key_bytes=self._backend.options.max_key_bytes)
        next_seq = self.writer.status.last_seq + 1
        try:
            answer = await self._compose(work, self._backend.db, batch)
            if len(batch):
                self.record_write(await self.writer.write(batch, seq=next_seq))
        except InvalidSequenceNumber:
            del batch
            answer = await self.in_transaction(lambda transaction: self._compose(work, transaction, transaction))
        finally:
            self.composed.close()  # after the write, which may wait for memory of its own
        return answer

    async def _compose(self, work: Callable[[Reads, Writes], Awaitable[bytes]], reads: Reads, target: Writes) -> bytes:
        """Read, and write to a target; the values count until they are written.

        Raises:
            RespError: those of all clients together need too much memory.
        """
        self.composed.close()  # of an attempt that conflicted
        answer = await work(reads, self.composed.to(target))
        if self._backend.composed.size_bytes > self._backend.options.max_inflight_bytes:
            raise RespError("TRYAGAIN the values of running commands need too much memory; nothing was written")
        return answer

    async def in_transaction(self, work: Callable[[Transaction], Awaitable[bytes]]) -> bytes:
        """Read and write in a new transaction; see ``atomically``."""
        for _ in range(_ATTEMPTS_MAX):
            self._backend.memory.release_values()  # of the attempt before
            transaction = await self.writer.transaction("serializable")
            try:
                answer = await work(transaction)
                handle = await transaction.commit()
            except TransactionConflict:
                continue
            finally:
                await transaction.close()
            if handle is not None:
                self.record_write(handle)
            return answer
        raise RespError(f"TRYAGAIN {_ATTEMPTS_MAX} attempts conflicted with other writes; nothing was written")

    def record_write(self, handle: WriteHandle) -> None:
        """Remember a write of this client, for WAITAOF and for replies that wait for durability."""
        self.last_write = handle
        if self._backend.options.durability == "durable":
            self.pending_durable = handle
