"""Transactions: reads at one moment, writes in a batch, and a check at the commit that nothing they rely on changed.

What conflicts is what conflicts in SlateDB (docs/protocol.md 4.4): with snapshot isolation, that somebody wrote a key
which the transaction writes; with serializable isolation also that somebody wrote what it has read: a key, or any key
of a range that it scanned.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any
from uuid import UUID

from shale.engine.batch import BytesLike, WriteBatch, checked_key
from shale.engine.lifetime import Moment, Ttl
from shale.engine.live_views import LiveViews
from shale.engine.own_writes import OwnWrites, SealedWrites
from shale.engine.read_point import Claim, Durability, ReadPoint
from shale.engine.read_view import ReadView
from shale.engine.reads import KEY_BYTES_MAX, Reads, checked_durability
from shale.engine.scan import Scan
from shale.engine.scan_range import scan_range
from shale.engine.write_handle import WriteHandle
from shale.engine.writer import Writer
from shale.errors import InvalidRequestError, MergeOperatorMissing, SstMissing, TransactionConflict
from shale.types import EVERYTHING, KeyRange, Row


class Transaction(Reads):
    """Made by ``Db.transaction``; used by one task at a time.

    It sees the database as it was when it began, with its own writes on top.  Nobody else sees them before the commit,
    and then all of them at once.  Rows that it has written itself have no place in history yet: ``seq`` is above all
    others and ``create_ts`` is ``None``.
    """

    __slots__ = (
        "_batch",
        "_held",
        "_id",
        "_is_over",
        "_is_serializable",
        "_limited_scans",
        "_own",
        "_ranges",
        "_read_keys",
        "_scanned",
        "_since",
        "_unmarked",
        "_writer",
    )

    def __init__(self, writer: Writer, *, serializable: bool) -> None:
        super().__init__(limits=writer.options.enforce_visible_range)
        accept = writer.acceptor
        self._id: UUID | None = None
        self._writer = writer
        self._is_serializable = serializable
        self._held = writer.active.hold(accept.committed_seq)
        self._since = accept.history.begin(accept.committed_seq)
        self._batch = WriteBatch(max_key_bytes=writer.options.max_key_bytes)
        self._own = OwnWrites(self._batch)
        self._unmarked: set[bytes] = set()
        self._read_keys: set[bytes] = set()
        self._ranges: list[KeyRange] = []
        self._scanned = EVERYTHING
        """What the scan wants that is being made."""
        self._limited_scans: list[Scan] = []
        self._is_over = False

    @property
    def id(self) -> UUID:
        """Tells it apart from all others."""
        if self._id is None:
            self._id = self._writer.env.ids.uuid()
        return self._id

    @property
    def seq(self) -> int:
        """The newest commit that it sees."""
        return self._held.seq

    @property
    def is_over(self) -> bool:
        """Whether it was committed or rolled back, or could not be committed."""
        return self._is_over

    def put(self, key: BytesLike, value: BytesLike, *, ttl: Ttl = None, expire_at: Moment | None = None) -> None:
        """Write a value with the commit; arguments are those of ``Db.put``.

        Raises:
            InvalidRequestError: an impossible key, value or lifetime, or the transaction is over.
        """
        self._require_open()
        self._batch.put(key, value, ttl=ttl, expire_at=expire_at)
        self._own.changed()

    def delete(self, key: BytesLike) -> None:
        """Remove a key with the commit; raises like ``put``."""
        self._require_open()
        self._batch.delete(key)
        self._own.changed()

    def merge(self, key: BytesLike, operand: BytesLike, *, ttl: Ttl = None, expire_at: Moment | None = None) -> None:
        """Add an operand for the merge operator with the commit; raises like ``put``.

        Raises:
            MergeOperatorMissing: the database was opened without an operator.
        """
        self._require_open()
        if self._writer.views.merge_operator is None:
            raise MergeOperatorMissing("merge needs a merge operator: open the database with one")
        self._batch.merge(key, operand, ttl=ttl, expire_at=expire_at)
        self._own.changed()

    def write(self, batch: WriteBatch) -> None:
        """Do all that a batch holds with the commit; the batch stays as it is.  Raises like ``put`` and ``merge``."""
        self._require_open()
        if batch.has_merges and self._writer.views.merge_operator is None:
            raise MergeOperatorMissing("merge needs a merge operator: open the database with one")
        self._batch.extend(batch)
        self._own.changed()

    def mark_read(self, keys: Iterable[BytesLike]) -> None:
        """Let the commit fail if somebody writes one of these keys, at every isolation level.

        Raises:
            InvalidRequestError: an impossible key, or the transaction is over.
        """
        self._require_open()
        self._read_keys.update([checked_key(key, KEY_BYTES_MAX) for key in keys])

    def unmark_write(self, keys: Iterable[BytesLike]) -> None:
        """Let writes of these keys, by this transaction, conflict with nobody else's: the last one counts.

        Raises:
            InvalidRequestError: an impossible key, or the transaction is over.
        """
        self._require_open()
        self._unmarked.update([checked_key(key, KEY_BYTES_MAX) for key in keys])

    async def get(
        self,
        key: BytesLike,
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
    ) -> bytes | None:
        """The value of a key, which counts as read; see ``Reads.get``."""
        self._note_reads((key,))
        return await super().get(key, durability=durability, hide_expired=hide_expired, now_ms=now_ms)

    async def get_row(
        self,
        key: BytesLike,
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
    ) -> Row | None:
        """The value of a key with its place in history; the key counts as read."""
        self._note_reads((key,))
        return await super().get_row(key, durability=durability, hide_expired=hide_expired, now_ms=now_ms)

    async def get_many(
        self,
        keys: Sequence[BytesLike],
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
        max_bytes: int | None = None,
    ) -> list[bytes | None]:
        """The values of many keys, in the order given; all of them count as read."""
        self._note_reads(keys)
        return await super().get_many(
            keys, durability=durability, hide_expired=hide_expired, now_ms=now_ms, max_bytes=max_bytes
        )

    def scan(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        limit: int | None = None,
        **options: Any,
    ) -> Scan:
        """Rows by key as they are now, with the writes that were made before; see ``Reads.scan``.

        The whole range counts as read, whatever is taken of it; of a scan that has reached its limit, what lies before
        that.
        """
        self._scanned = scan_range(prefix=prefix, start=start, stop=stop)
        scan = super().scan(prefix=prefix, start=start, stop=stop, limit=limit, **options)
        if self._is_serializable:
            if limit is None:
                self._ranges.append(self._scanned)
            else:
                self._limited_scans.append(scan)
        return scan

    async def commit(self, *, durable: bool = False, seq: int | None = None) -> WriteHandle | None:
        """Make the writes visible to everybody, as one commit; whatever comes of it, the transaction is over.

        Args:
            durable: return once they are durable.
            seq: their sequence number, above all others; by default the next one.

        Returns:
            The handle; ``None`` without writes.

        Raises:
            TransactionConflict: somebody wrote what this transaction relies on; nothing was written.
            InvalidRequestError: it was over already; or see ``Db.write``.
        """
        self._require_open()
        self._is_over = True
        try:
            handle = await self._committed(seq)
        finally:
            self._let_go()
        if handle is not None and durable:
            await handle.durable()
        return handle

    async def rollback(self) -> None:
        """Forget the writes.

        Raises:
            InvalidRequestError: the transaction is over.
        """
        self._require_open()
        self._is_over = True
        self._let_go()

    async def close(self) -> None:
        """Roll back unless it is over; may be called again."""
        if not self._is_over:
            await self.rollback()

    async def _committed(self, seq: int | None) -> WriteHandle | None:
        if not len(self._batch):
            self._writer.check_readable()
            self._require_no_conflict()
            return None
        handle = await self._writer.acceptor.write(self._batch, seq, self._require_no_conflict)
        # Nothing has waited since the commit, so nobody was told of a conflict with these.
        if self._unmarked:
            self._writer.acceptor.history.hide(self._unmarked.intersection(self._batch), handle.seq)
        return handle

    def _require_no_conflict(self) -> None:
        since = self._since
        written = (key for key in self._batch if key not in self._unmarked)
        scanned = (*self._ranges, *(scan.read_range for scan in self._limited_scans))
        if since.is_lost and (scanned or self._read_keys or any(key not in self._unmarked for key in self._batch)):
            raise TransactionConflict(
                f"more was written since seq {self.seq}, when the transaction began, than "
                f"max_transaction_history_bytes = {self._writer.options.max_transaction_history_bytes} keeps the keys "
                "of, so a conflict cannot be ruled out: try again with a shorter transaction, or raise the setting"
            )
        if since.wrote_any(written) or since.wrote_any(self._read_keys) or since.wrote_in(scanned):
            raise TransactionConflict(f"somebody wrote what the transaction relies on since seq {self.seq}")

    def _note_reads(self, keys: Iterable[BytesLike]) -> None:
        if self._is_serializable and not self._is_over:
            self._read_keys.update([checked_key(key, KEY_BYTES_MAX) for key in keys])

    def _require_open(self) -> None:
        if self._is_over:
            raise InvalidRequestError("the transaction has already been completed")

    def _let_go(self) -> None:
        self._writer.views.points.pop(self._held.number, None)
        self._held.close()
        self._since.close()
        self._writer.acceptor.history.forget()
        self._limited_scans.clear()

    def _read_point(self, durability: Durability) -> ReadPoint:
        self._require_open()
        writer = self._writer
        writer.check_readable()
        held, views = self._held, writer.views
        point = views.points.get(held.number)
        if point is None:
            point = views.points[held.number] = ReadPoint(views.view.above(self._own), held.seq, views)
        return self._limited(point, durability)

    def _scan_point(self, durability: Durability) -> ReadPoint:
        self._read_point(durability)
        views = self._writer.views
        keeper = _BelowWrites(views, self._own.sealed(self._scanned))
        # The keeper puts the writes on top when the scan begins.
        return self._limited(ReadPoint(views.view, self.seq, keeper), durability)

    def _limited(self, point: ReadPoint, durability: Durability) -> ReadPoint:
        durable_seq = self._writer.progress.durable_seq
        if checked_durability(durability) and durable_seq < self.seq:
            return replace(point, max_seq=durable_seq)
        return point

    def _clock_ms(self) -> int:
        return self._writer.clock_ms()


class _BelowWrites:
    """Gives a scan of a transaction its views; see ``Keeper``."""

    def __init__(self, views: LiveViews, own: SealedWrites) -> None:
        self._views = views
        self._own = own

    def newest(self) -> ReadView:
        """The newest view with the writes on top."""
        return self._views.view.above(self._own)

    def hold(self, seq: int) -> Claim:
        """Keep what is visible at ``seq``."""
        return self._views.hold(seq)

    async def renew(self, gone: SstMissing) -> None:
        """See to it that the newest view does without an SST that is gone."""
        await self._views.renew(gone)


class Beginning:
    """What ``Db.transaction`` returns: await it for the transaction, or enter it.

    On leaving the block the transaction is committed, or rolled back if the block has raised; one that is over is left
    alone.
    """

    def __init__(self, writer: Writer, *, serializable: bool) -> None:
        self._writer = writer
        self._is_serializable = serializable
        self._transaction: Transaction | None = None

    async def begun(self) -> Transaction:
        """The same as awaiting it, for those who need a coroutine."""
        self._writer.check_readable()
        return Transaction(self._writer, serializable=self._is_serializable)

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
