"""``DbSnapshot`` and ``DbTransaction``."""

from shale.compat.slatedb.arguments import checked_key, checked_value, lifetime, seqnum_of
from shale.compat.slatedb.errors import invalid, raises_slatedb_errors
from shale.compat.slatedb.metrics.bridge import MetricsBridge
from shale.compat.slatedb.reads import DbReads
from shale.compat.slatedb.types.options import MergeOptions, PutOptions, WriteOptions
from shale.compat.slatedb.writes import WriteHandle, handle_of
from shale.engine.read.reads import Reads
from shale.engine.read.snapshot import Snapshot
from shale.engine.txn.transaction import Transaction


class DbSnapshot(DbReads):
    """The database as it was when the snapshot was made."""


class DbTransaction(DbReads):
    """Reads at one moment, and writes that become visible together."""

    __slots__ = ("_transaction",)

    _transaction: Transaction

    def id(self) -> str:
        """Return its UUID."""
        return str(self._transaction.id)

    def seqnum(self) -> int:
        """Return the sequence number of the newest commit that it sees."""
        return self._transaction.seq

    @raises_slatedb_errors
    async def put(self, key: bytes, value: bytes) -> None:
        """Write a value with the commit."""
        plain, content = checked_key(key), checked_value(value)
        self._open().put(plain, content)

    @raises_slatedb_errors
    async def put_with_options(self, key: bytes, value: bytes, options: PutOptions) -> None:
        """Write a value with a lifetime with the commit."""
        plain, content = checked_key(key), checked_value(value)
        self._open().put(plain, content, **lifetime(options.ttl))

    @raises_slatedb_errors
    async def delete(self, key: bytes) -> None:
        """Delete a key with the commit."""
        plain = checked_key(key)
        self._open().delete(plain)

    @raises_slatedb_errors
    async def merge(self, key: bytes, operand: bytes) -> None:
        """Add an operand with the commit."""
        plain, content = checked_key(key), checked_value(operand)
        self._open().merge(plain, content)

    @raises_slatedb_errors
    async def merge_with_options(self, key: bytes, operand: bytes, options: MergeOptions) -> None:
        """Add an operand with a lifetime with the commit."""
        plain, content = checked_key(key), checked_value(operand)
        self._open().merge(plain, content, **lifetime(options.ttl))

    @raises_slatedb_errors
    async def mark_read(self, keys: list[bytes]) -> None:
        """Make the commit fail if another commit writes one of these keys; empty keys are ignored."""
        self._open().mark_read(filter(None, map(checked_value, keys)))

    @raises_slatedb_errors
    async def unmark_write(self, keys: list[bytes]) -> None:
        """Exempt writes of these keys from conflicts."""
        self._open().unmark_write(filter(None, map(checked_value, keys)))

    @raises_slatedb_errors
    async def commit(self) -> WriteHandle | None:
        """Make the writes visible; return ``None`` without writes."""
        return await self._commit(None)

    @raises_slatedb_errors
    async def commit_with_options(self, options: WriteOptions) -> WriteHandle | None:
        """Make the writes visible with a given sequence number."""
        return await self._commit(seqnum_of(options))

    @raises_slatedb_errors
    async def rollback(self) -> None:
        """Discard the writes."""
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


def snapshot_of(snapshot: Snapshot, recording: MetricsBridge) -> DbSnapshot:
    """Wrap a snapshot of the engine."""
    made = DbSnapshot._blank_here()
    made._source, made._recording = snapshot, recording
    return made


def transaction_of(transaction: Transaction, recording: MetricsBridge) -> DbTransaction:
    """Wrap a transaction of the engine."""
    made = DbTransaction._blank_here()
    made._source, made._recording, made._transaction = transaction, recording, transaction
    return made
