"""Transactions: reads at one moment, writes in a batch, and a conflict check at the commit.

Conflicts are those of SlateDB (docs/reference/protocol.md 4.4).  With snapshot isolation a transaction conflicts with
later commits of keys that it writes; with serializable isolation also with later commits of keys that it has read, and
of any key in a range that it has scanned.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Unpack
from uuid import UUID

from shale.core.argument_types import keys_of
from shale.core.bytes_like import BytesLike
from shale.engine.read.read_point import Durability, ReadPoint, SeqHold
from shale.engine.read.reads import KEY_BYTES_MAX, ScanOptions, checked_durability, range_of
from shale.engine.read.super_version import SuperVersion
from shale.engine.read.view_publisher import ViewPublisher
from shale.engine.scan.plan import scan_range
from shale.engine.scan.recency import RecencyScan
from shale.engine.scan.scan import Scan
from shale.engine.txn.own_writes import FrozenWrites
from shale.engine.txn.writes import TransactionWrites
from shale.engine.write.batch import checked_key
from shale.engine.write.write_handle import WriteHandle
from shale.engine.write.writer import Writer
from shale.errors import SstMissing, TransactionConflict
from shale.types import EVERYTHING, KeyRange, Row


class Transaction(TransactionWrites):
    """Made by ``Db.transaction``; used by one task at a time.

    It reads the database as it was when it began, with its own writes on top.  The commit makes all writes visible at
    once.  Until then its own rows have a ``seq`` above all others and no ``create_ts``.
    """

    __slots__ = (
        "_held",
        "_id",
        "_is_serializable",
        "_limited_scans",
        "_ranges",
        "_scanned",
        "_since",
    )

    def __init__(self, writer: Writer, *, serializable: bool, tells_own_lifetimes: bool = True) -> None:
        super().__init__(writer, tells_own_lifetimes=tells_own_lifetimes)
        pipeline = writer.pipeline
        self._id: UUID | None = None
        self._is_serializable = serializable
        self._held = writer.active.hold(pipeline.committed_seq)
        self._since = pipeline.history.begin(pipeline.committed_seq)
        self._ranges: list[KeyRange] = []
        self._scanned = EVERYTHING
        """The key range of the scan that is being created."""
        self._limited_scans: list[Scan] = []

    @property
    def id(self) -> UUID:
        """A unique id."""
        if self._id is None:
            self._id = self._writer.env.ids.uuid()
        return self._id

    @property
    def seq(self) -> int:
        """The newest commit that the transaction sees."""
        return self._held.seq

    @property
    def is_over(self) -> bool:
        """Whether the transaction was committed or rolled back, or its commit failed."""
        return self._is_over

    async def get(
        self,
        key: BytesLike,
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
        cache_blocks: bool = True,
    ) -> bytes | None:
        """Return the value of a key and mark the key as read; see ``Reads.get``."""
        self._note_reads((key,))
        return await super().get(
            key, durability=durability, hide_expired=hide_expired, now_ms=now_ms, cache_blocks=cache_blocks
        )

    async def get_row(
        self,
        key: BytesLike,
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
        cache_blocks: bool = True,
    ) -> Row | None:
        """Return the row of a key and mark the key as read."""
        self._note_reads((key,))
        return await super().get_row(
            key, durability=durability, hide_expired=hide_expired, now_ms=now_ms, cache_blocks=cache_blocks
        )

    async def get_many(
        self,
        keys: Sequence[BytesLike],
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
        max_bytes: int | None = None,
        cache_blocks: bool = True,
    ) -> list[bytes | None]:
        """Return the values of many keys in the given order and mark the keys as read."""
        self._note_reads(keys)
        return await super().get_many(
            keys,
            durability=durability,
            hide_expired=hide_expired,
            now_ms=now_ms,
            max_bytes=max_bytes,
            cache_blocks=cache_blocks,
        )

    def scan(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        reverse: bool = False,
        limit: int | None = None,
        **options: Unpack[ScanOptions],
    ) -> Scan:
        """Scan rows by key, with this transaction's writes so far; see ``Reads.scan``.

        The whole range is marked as read, even if not all rows are taken; a scan that has reached its limit marks the
        range up to its last row.
        """
        self._scanned = range_of(prefix, start, stop, options)
        scan = super().scan(prefix=prefix, start=start, stop=stop, reverse=reverse, limit=limit, **options)
        if self._is_serializable:
            if limit is None:
                self._ranges.append(self._scanned)
            else:
                self._limited_scans.append(scan)
        return scan

    def scan_prefix_by_recency(
        self, prefix: BytesLike, *, reverse: bool = False, durability: Durability = "memory", cache_blocks: bool = True
    ) -> RecencyScan:
        """Scan stored rows, this transaction's writes first; marks all keys with the prefix as read."""
        self._scanned = scan_range(prefix=prefix)
        scan = super().scan_prefix_by_recency(prefix, reverse=reverse, durability=durability, cache_blocks=cache_blocks)
        if self._is_serializable:
            self._ranges.append(self._scanned)
        return scan

    async def commit(self, *, durable: bool = False, seq: int | None = None) -> WriteHandle | None:
        """Commit the writes; success or not, the transaction is over.

        Args:
            durable: wait until the writes are durable.
            seq: the sequence number, above all others; by default the next one.

        Returns:
            The handle; ``None`` without writes.

        Raises:
            TransactionConflict: a later commit wrote what this transaction relies on; nothing was written.
            InvalidRequestError: the transaction was over already; or see ``Db.write``.
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
        """Discard the writes.

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
        handle = await self._writer.pipeline.write(self._batch, seq, self._require_no_conflict)
        # No await since the commit, so no other commit has seen a conflict with these keys.
        if self._unmarked:
            self._writer.pipeline.history.hide(self._unmarked.intersection(self._batch), handle.seq)
        return handle

    def _require_no_conflict(self) -> None:
        since = self._since
        written = (key for key in self._batch if key not in self._unmarked)
        scanned = (*self._ranges, *(scan.read_range for scan in self._limited_scans))
        if since.has_overflowed and (
            scanned or self._read_keys or any(key not in self._unmarked for key in self._batch)
        ):
            raise TransactionConflict(
                f"more was written since seq {self.seq}, when the transaction began, than "
                f"max_transaction_history_bytes = {self._writer.options.max_transaction_history_bytes} keeps the keys "
                "of, so a conflict cannot be ruled out: try again with a shorter transaction, or raise the setting"
            )
        if since.wrote_any(written) or since.wrote_any(self._read_keys) or since.wrote_in(scanned):
            raise TransactionConflict(
                f"a commit since seq {self.seq} wrote what the transaction relies on: "
                "begin another one, and repeat its reads and writes"
            )

    def _shown_state(self) -> Mapping[str, object]:
        return {
            "state": "over" if self._is_over else "open",
            "isolation": "serializable" if self._is_serializable else "snapshot",
            "seq": self.seq,
            "keys_written": len(self._batch),
            "database": self._writer.location.path,
        }

    def _note_reads(self, keys: Iterable[BytesLike]) -> None:
        if self._is_serializable and not self._is_over:
            self._read_keys.update([checked_key(key, KEY_BYTES_MAX) for key in keys_of(keys)])

    def _let_go(self) -> None:
        self._writer.views.points.pop(self._held.number, None)
        self._held.close()
        self._since.close()
        self._writer.pipeline.history.forget()
        self._limited_scans.clear()

    def _read_point(self, durability: Durability) -> ReadPoint:
        self._require_open()
        writer = self._writer
        writer.check_readable()
        held, views = self._held, writer.views
        point = views.points.get(held.number)
        if point is None:
            point = views.points[held.number] = ReadPoint(views.view.with_own_writes(self._own), held.seq, views)
        return self._limited(point, durability)

    def _scan_point(self, durability: Durability) -> ReadPoint:
        self._read_point(durability)
        views = self._writer.views
        view_provider = _BelowWrites(views, self._own.sealed(self._scanned))
        # ``_BelowWrites`` puts the writes on top when the scan begins.
        return self._limited(ReadPoint(views.view, self.seq, view_provider), durability)

    def _limited(self, point: ReadPoint, durability: Durability) -> ReadPoint:
        durable_seq = self._writer.durability.durable_seq
        if checked_durability(durability) and durable_seq < self.seq:
            return point._replace(max_seq=durable_seq)
        return point

    def _clock_ms(self) -> int:
        return self._writer.clock_ms()


class _BelowWrites:
    """Gives a scan of a transaction its views; see ``ViewProvider``."""

    def __init__(self, views: ViewPublisher, own: FrozenWrites) -> None:
        self._views = views
        self._own = own

    def newest_view(self) -> SuperVersion:
        """Return the newest view with the transaction's writes on top."""
        return self._views.view.with_own_writes(self._own)

    def hold(self, seq: int) -> SeqHold:
        """Keep what is visible at ``seq``; see ``ViewProvider``."""
        return self._views.hold(seq)

    async def on_sst_missing(self, gone: SstMissing) -> None:
        """See to it that the newest view does without an SST that is gone."""
        await self._views.on_sst_missing(gone)
