"""``DbSnapshot`` and ``DbTransaction``."""

from shale.compat.slatedb.arguments import checked_key, checked_value, lifetime, seqnum_of
from shale.compat.slatedb.errors import invalid, translates
from shale.compat.slatedb.options import MergeOptions, PutOptions, WriteOptions
from shale.compat.slatedb.reads import ReadCalls
from shale.compat.slatedb.recording import Recording
from shale.compat.slatedb.writes import WriteHandle, handle_of
from shale.engine.reads import Reads
from shale.engine.snapshot import Snapshot
from shale.engine.transaction import Transaction


class DbSnapshot(ReadCalls):
    """The database as it was when the snapshot was made."""


class DbTransaction(ReadCalls):
    """Reads at one moment, and writes that become visible together."""

    __slots__ = ("_transaction",)

    _transaction: Transaction

    def id(self) -> str:
        """A UUID."""
        return str(self._transaction.id)

    def seqnum(self) -> int:
        """The newest commit that it sees."""
        return self._transaction.seq

    @translates
    async def put(self, key: bytes, value: bytes) -> None:
        """Write a value with the commit."""
        plain, content = checked_key(key), checked_value(value)
        self._open().put(plain, content)

    @translates
    async def put_with_options(self, key: bytes, value: bytes, options: PutOptions) -> None:
        """Write a value with a lifetime with the commit."""
        plain, content = checked_key(key), checked_value(value)
        self._open().put(plain, content, **lifetime(options.ttl))

    @translates
    async def delete(self, key: bytes) -> None:
        """Delete a key with the commit."""
        plain = checked_key(key)
        self._open().delete(plain)

    @translates
    async def merge(self, key: bytes, operand: bytes) -> None:
        """Add an operand with the commit."""
        plain, content = checked_key(key), checked_value(operand)
        self._open().merge(plain, content)

    @translates
    async def merge_with_options(self, key: bytes, operand: bytes, options: MergeOptions) -> None:
        """Add an operand with a lifetime with the commit."""
        plain, content = checked_key(key), checked_value(operand)
        self._open().merge(plain, content, **lifetime(options.ttl))

    @translates
    async def mark_read(self, keys: list[bytes]) -> None:
        """Let the commit fail if somebody writes one of these keys; an empty one nobody can write."""
        self._open().mark_read(filter(None, map(checked_value, keys)))

    @translates
    async def unmark_write(self, keys: list[bytes]) -> None:
        """Let writes of these keys conflict with nobody's."""
        self._open().unmark_write(filter(None, map(checked_value, keys)))

    @translates
    async def commit(self) -> WriteHandle | None:
        """Make the writes visible; ``None`` without writes."""
        return await self._commit(None)

    @translates
    async def commit_with_options(self, options: WriteOptions) -> WriteHandle | None:
        """Make the writes visible under a sequence number of the caller's."""
        return await self._commit(seqnum_of(options))

    @translates
    async def rollback(self) -> None:
        """Forget the writes."""
        await self._open().rollback()

    async def _commit(self, seq: int | None) -> WriteHandle | None:
        handle = await self._open().commit(seq=seq)
        if handle is None:
            return None
        self._recording.wrote()
        return handle_of(handle)

    def _open(self) -> Transaction:
        if self._transaction.is_over:
            raise invalid("transaction has already been completed")
        return self._transaction

    def _reads(self) -> Reads:
        return self._open()


def snapshot_of(snapshot: Snapshot, recording: Recording) -> DbSnapshot:
    """The front of a snapshot of the engine."""
    made = DbSnapshot._blank_here()
    made._source, made._recording = snapshot, recording
    return made


def transaction_of(transaction: Transaction, recording: Recording) -> DbTransaction:
    """The front of a transaction of the engine."""
    made = DbTransaction._blank_here()
    made._source, made._recording, made._transaction = transaction, recording, transaction
    return made
