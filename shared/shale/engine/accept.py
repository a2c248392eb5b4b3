"""Accepting writes (docs/protocol.md 4.4).

A write is a plain function body: between the last await before it and its end nothing else runs, so sequence numbers,
the WAL's order and the memtable agree without a lock.  What may have to wait (a full buffer, a clock that went
back, the turn of other tasks) is waited for in the caller's task, before anything has changed.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

import anyio
import anyio.lowlevel

from shale.engine.batch import BytesLike, WriteBatch, checked_key, checked_value
from shale.engine.clock import DbClock
from shale.engine.commit_history import CommitHistory
from shale.engine.frozen_table import FrozenTable
from shale.engine.key_limits import require_all_inside
from shale.engine.lifetime import Lifetime, Moment, Ttl, expire_ts, lifetime_of
from shale.engine.memtable import ROW_OVERHEAD_BYTES, Memtable
from shale.engine.options import MAX_VALUE_BYTES, DbOptions
from shale.engine.progress import Progress
from shale.engine.segments import ROOT_TREE, SegmentRouter
from shale.engine.wal_buffer import WalBuffer
from shale.engine.write_handle import Durability, WriteHandle
from shale.errors import InvalidRequestError, InvalidSequenceNumber, MergeOperatorMissing, ShaleError
from shale.format.sequence_tracker import SequenceTracker
from shale.iter.merge_operator import MergeOperator
from shale.kernels.rows import Rows
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry, Manifest

_YIELD_AFTER_MS = 2
_TRACK_EVERY_S = 60
_SLOW = -1
_BURST_PUTS = 8
"""So many puts in a millisecond, and the next ones are prepared for."""
_STAMPS_MAX = 4096
_new = object.__new__
SEQ_MAX = (1 << 63) - 1
"""The greatest sequence number that a caller may choose; there is room for more behind it."""


class Acceptor:
    """The active memtable and everything that a write touches.

    The owner sets the hooks: ``check`` raises once writing is over, ``room`` waits until there is room in memory, the
    ``on_…`` ones tell what has happened.  ``route`` lets writes through to segments, in a database that has them.

    Args:
        options: limits and defaults.
        clock: the database's clock, behind which no commit time falls.
        durability: given to every handle.
        operator: folds merge operands; without one nothing can be merged.
        state: the manifest that was claimed, in whose L0s everything up to now is but for what is to be replayed.
        progress: knows the durable end of the WAL, with which every frozen table is stamped.
    """

    __slots__ = (
        "_admitted_ms",
        "_attention_bytes",
        "_burst_ms",
        "_burst_start",
        "_clock",
        "_consumed_wal_id",
        "_default_ttl_ms",
        "_durability",
        "_frozen_bytes",
        "_frozen_rows",
        "_last_freeze_wal_id",
        "_last_tracked_s",
        "_limits",
        "_max_key_bytes",
        "_now_ms",
        "_open_ms",
        "_open_s",
        "_operator",
        "_options",
        "_progress",
        "_replayed_bytes",
        "_replayed_rows",
        "_seq_before_skip",
        "_shut_s",
        "_skipped_seq",
        "_tracked",
        "_wall_s",
        "_yielded_ms",
        "batch_rows",
        "check",
        "deletes",
        "frozen",
        "history",
        "last_seq",
        "merges",
        "on_freeze",
        "on_full_wal",
        "on_rows",
        "on_tables",
        "room",
        "route",
        "table",
        "wal",
        "write_batches",
    )

    def __init__(
        self,
        options: DbOptions,
        clock: DbClock,
        durability: Durability,
        operator: MergeOperator | None,
        *,
        state: Manifest,
        progress: Progress,
    ) -> None:
        self.last_seq: int = state.last_l0_seq
        self.table = Memtable()
        self.history = CommitHistory(self.table, options.max_transaction_history_bytes)
        self.frozen: deque[FrozenTable] = deque()
        self.wal = WalBuffer(progress.durable_wal_id + 1, self.table) if options.wal_enabled else None
        """What the WAL still lacks; ``None`` with the WAL disabled."""
        self.merges = 0
        self.write_batches = 0
        self.deletes = 0
        self.batch_rows = 0
        self.on_freeze: Callable[[], None] = _nothing
        self.on_tables: Callable[[], None] = _nothing
        self.on_rows: Callable[[], None] = _nothing
        self.on_full_wal: Callable[[], None] = _nothing
        self.check: Callable[[], None] = _nothing
        self.room: Callable[[], Awaitable[None]] = _no_wait
        self.route: SegmentRouter | None = None
        self._options = options
        self._limits = options.enforce_visible_range
        self._clock = clock
        self._now_ms = clock.now_ms
        self._wall_s = clock.wall_s
        self._durability = durability
        self._operator = operator
        self._skipped_seq = _SLOW
        self._seq_before_skip = 0
        self._progress = progress
        self._consumed_wal_id: int = state.replay_after_wal_id
        self._last_freeze_wal_id: int = state.replay_after_wal_id
        """The stamp of the youngest frozen table, or where replay begins."""
        self._admitted_ms = _SLOW
        """Commits of this millisecond may go on without ``_admit``."""
        self._open_ms = _SLOW
        """The same, and their keys need neither a route nor a look at their limits."""
        self._open_s = self._shut_s = 0.0
        """When that millisecond begins and ends."""
        self._yielded_ms = 0
        self._burst_ms = _SLOW
        """The millisecond of the last put that was not prepared for, and
        where the log ended at the first one in it."""
        self._burst_start = 0
        self._max_key_bytes = options.max_key_bytes
        self._default_ttl_ms = options.default_ttl_ms
        self._tracked: list[tuple[int, int]] = []
        points = SequenceTracker.decode(state.sequence_tracker).points
        self._last_tracked_s = points[-1][1] if points else 0
        self._attention_bytes = 0
        self._frozen_bytes = self._frozen_rows = 0
        self._replayed_bytes = self._replayed_rows = 0
        self._set_attention()

    @property
    def committed_seq(self) -> int:
        """The newest sequence number that a commit has.

        ``last_seq`` lies above it behind a commit that was refused after it got its number, as in SlateDB.
        """
        return self._seq_before_skip if self.last_seq == self._skipped_seq else self.last_seq

    @property
    def write_ops(self) -> int:
        """Rows that were written since the start, replay left out."""
        return self._frozen_rows + self.table.row_count - self._replayed_rows

    @property
    def memtable_write_bytes(self) -> int:
        """Bytes of keys and values that were written since the start, replay and what rows take besides left out."""
        written = self._frozen_bytes + self.table.size_bytes - self._replayed_bytes
        return written - ROW_OVERHEAD_BYTES * self.write_ops

    @property
    def unflushed_bytes(self) -> int:
        """Estimated bytes of memtables and WAL buffer together."""
        buffered = self.wal.size_bytes if self.wal is not None else 0
        return self.table.size_bytes + sum(frozen.size_bytes for frozen in self.frozen) + buffered

    @property
    def can_shrink(self) -> bool:
        """Whether something in memory is on its way to the store; else nothing would wake who waits for room."""
        return bool(self.frozen or (self.wal is not None and self.wal.size_bytes))

    def tracked(self) -> list[tuple[int, int]]:
        """Sequence numbers with the seconds in which they were reached, of rows in memory, oldest first."""
        return [*(point for frozen in self.frozen for point in frozen.tracked), *self._tracked]

    async def put(self, key: BytesLike, value: BytesLike) -> WriteHandle:
        """Write one value with the database's default lifetime."""
        table = self.table
        log = table.log
        keys = log.keys
        place = len(keys)
        if (
            self._open_s <= self._wall_s() < self._shut_s
            and place < log.stamped_end
            and type(key) is bytes
            and 0 < len(key) <= self._max_key_bytes
            and type(value) is bytes
            and (size := table.size_bytes + len(key) + len(value) + ROW_OVERHEAD_BYTES) < self._attention_bytes
        ):
            # One of many: all but what is its own was done in advance, and from here to the end nothing waits.
            table.index[key] = place
            keys.append(key)
            log.values.append(value)
            table.size_bytes = size
            self.last_seq = seq = self.last_seq + 1
            handle = _new(WriteHandle)  # without the call of its ``__init__``, which would take longer than all of it
            handle.seq = seq
            handle.create_ts = self._open_ms
            handle._durability = self._durability
            return handle
        key, value = checked_key(key, self._max_key_bytes), checked_value(value)
        handle = await self._append(key, value, 0, self._default_ttl_ms)
        self._expect_puts(handle.create_ts)
        return handle

    def _expect_puts(self, now: int) -> None:
        """A put at this time was not prepared for: if there were many of late, prepare for as many again."""
        log = self.table.log
        place = len(log)
        recent = place - self._burst_start
        if now != self._burst_ms:
            self._burst_ms, self._burst_start = now, place
        if recent >= _BURST_PUTS and now == self._open_ms:
            log.stamp_ahead(min(recent, _STAMPS_MAX), self.last_seq + 1, now, self._default_ttl_ms)

    async def put_living(self, key: BytesLike, value: BytesLike, ttl: Ttl, expire_at: Moment | None) -> WriteHandle:
        """Write one value with a lifetime of its own."""
        key, value = checked_key(key, self._max_key_bytes), checked_value(value)
        return await self._append(key, value, 0, lifetime_of(ttl, expire_at, self._default_ttl_ms))

    async def delete(self, key: BytesLike) -> WriteHandle:
        """Write one tombstone."""
        handle = await self._append(checked_key(key, self._max_key_bytes), b"", FLAG_TOMBSTONE, None)
        self.deletes += 1
        return handle

    async def merge(
        self, key: BytesLike, operand: BytesLike, ttl: Ttl = None, expire_at: Moment | None = None
    ) -> WriteHandle:
        """Write one merge operand."""
        if self._operator is None:
            raise MergeOperatorMissing("merge needs a merge operator: open the database with one")
        key = checked_key(key, self._max_key_bytes)
        # As in SlateDB the operator sees every operand before it is stored: one that it refuses would end the writer
        # when the memtable is flushed.
        operand = self._operator(key, None, (checked_value(operand),))
        handle = await self._append(key, operand, FLAG_MERGE, lifetime_of(ttl, expire_at, self._default_ttl_ms))
        self.merges += 1
        return handle

    async def _append(self, key: bytes, value: bytes, flags: int, lifetime: Lifetime) -> WriteHandle:
        """Write one row of any kind."""
        if self._limits is not None:
            require_all_inside(self._limits, (key,))
        now = await self._admit() if self._now_ms() != self._admitted_ms else self._admitted_ms
        # From here to the end nothing waits.
        if self.route is not None:
            self._route_key(self.route, key)
        self.last_seq = seq = self.last_seq + 1
        flags, expires = flags | FLAG_CREATE_TS, 0
        if lifetime is not None:
            flags, expires = flags | FLAG_EXPIRE_TS, expire_ts(lifetime, now)
        self.table.append(Entry(key, value, seq, flags, now, expires))
        if self.table.size_bytes >= self._attention_bytes:
            self._attend()
        return WriteHandle(seq, now, self._durability)

    async def write(
        self, batch: WriteBatch, seq: int | None = None, guard: Callable[[], None] | None = None
    ) -> WriteHandle:
        """Write a batch as one commit: one sequence number, one WAL file.

        Args:
            batch: what to write; looked at when the commit happens.
            seq: the sequence number; the next one by default.
            guard: called when nothing stands between it and the commit any more; may refuse by raising.

        Raises:
            InvalidRequestError: the batch is empty.
            InvalidSequenceNumber: the number is not above the last one.
            MergeOperatorMissing, IncompatibleMergeTtls, MergeOperatorFailed: its merges cannot be folded.
        """
        if not len(batch):
            raise InvalidRequestError("the batch is empty")
        self._next_seq(seq)  # an impossible one is refused before anything takes note of it
        now = await self._admit(seq) if self._now_ms() != self._admitted_ms else self._admitted_ms
        # From here to the end nothing waits.
        seq = self._next_seq(seq)
        try:
            if guard is not None:
                guard()
            rows = batch.commit_rows(self._default_ttl_ms, self._operator)
            if not rows.keys:
                raise InvalidRequestError("the batch was emptied before it could be written")
            if self._limits is not None:
                require_all_inside(self._limits, rows.keys)
            segments = self.route.segments_of(rows.keys) if self.route is not None else ()
            if self.route is not None:
                self.route.admit_all(segments)
        except ShaleError:
            self._skip(seq)
            raise
        self.last_seq = seq
        table = self.table
        count = len(rows.keys)
        size = table.append_commit(rows, seq, now, has_operands=batch.has_merges)
        self.batch_rows += count
        self.write_batches += 1
        if size >= self._attention_bytes:
            self._attend()
        return WriteHandle(seq, now, self._durability)

    async def write_columns(self, rows: Rows, lifetime: Lifetime, segments: Sequence[bytes] = ()) -> WriteHandle:
        """Write rows that are in columns already as one commit.

        Args:
            rows: some, by key, one each; the caller gives them away, and their stamps are set here.
            lifetime: of all of them.
            segments: that they go to, in a database that has some.
        """
        if self._limits is not None:
            require_all_inside(self._limits, (rows.key(0), rows.key(len(rows) - 1)))
        now = await self._admit() if self._now_ms() != self._admitted_ms else self._admitted_ms
        seq = self._next_seq(None)
        if self.route is not None:
            self._route_all(self.route, segments)
        self.table.log.drop_stamps()
        self.last_seq = seq
        rows.seq.fill(seq)
        rows.create_ts.fill(now)
        if lifetime is not None:
            rows.flags.fill(FLAG_CREATE_TS | FLAG_EXPIRE_TS)
            rows.expire_ts.fill(expire_ts(lifetime, now))
        if self.wal is None:
            self.table.append_columns(rows)
        else:
            self.wal.append_columns(rows)
        self.batch_rows += len(rows)
        self.write_batches += 1
        if self.table.size_bytes >= self._attention_bytes:
            self._attend()
        return WriteHandle(seq, now, self._durability)

    def _next_seq(self, wanted: int | None) -> int:
        if wanted is None:
            return self.last_seq + 1
        if type(wanted) is not int or not 0 < wanted <= SEQ_MAX:
            raise InvalidRequestError(f"seq: {wanted!r} is no number from 1 to {SEQ_MAX}")
        if wanted <= self.last_seq:
            raise InvalidSequenceNumber(f"seq {wanted} is not above {self.last_seq}, the last one")
        return wanted

    def _route_key(self, route: SegmentRouter, key: bytes) -> None:
        try:
            route.admit(key)
        except ShaleError:
            self._skip(self.last_seq + 1)
            raise

    def _route_all(self, route: SegmentRouter, segments: Iterable[bytes]) -> None:
        try:
            route.admit_all(segments)
        except ShaleError:
            self._skip(self.last_seq + 1)
            raise

    def _skip(self, seq: int) -> None:
        """A commit got a sequence number and was refused: nobody else gets it."""
        self.table.log.drop_stamps()
        if self._skipped_seq != self.last_seq:
            self._seq_before_skip = self.last_seq
        self._skipped_seq = self.last_seq = seq

    def freeze(self) -> None:
        """Freeze the active memtable and stamp it with the durable end of the WAL; without rows nothing happens."""
        self._freeze(self._progress.durable_wal_id)
        self._follow(Memtable())

    def freeze_full(self) -> None:
        """Freeze the table that replay has left if it is over the limit: without writes nobody else would look."""
        if self.table.size_bytes >= self._options.l0_sst_size_bytes:
            self.freeze()

    def install(
        self,
        table: Memtable,
        last_seq: int,
        last_tick: int | None,
        *,
        consumed_wal_id: int,
        segments: Sequence[bytes] = (),
    ) -> None:
        """Go on with a table of replayed rows.

        The one before is frozen with the last WAL id that it and its predecessors contain: the durable end of the WAL
        already lies behind files that are still to be replayed.
        """
        if self.table.row_count:
            self._freeze(self._consumed_wal_id)
        if self.route is not None:
            self.route.restore(segments)
        self._consumed_wal_id = consumed_wal_id
        self.last_seq = max(self.last_seq, last_seq)
        if last_tick is not None:
            self._clock.last_tick = max(self._clock.last_tick, last_tick)
        self._track(last_seq)
        self._replayed_bytes += table.size_bytes
        self._replayed_rows += table.row_count
        self._follow(table)

    def consumed(self, wal_id: int) -> None:
        """Replay has passed files without rows."""
        self._consumed_wal_id = wal_id

    def _freeze(self, stamp: int) -> None:
        table = self.table
        if not table.row_count:
            return
        self.frozen.append(
            FrozenTable(
                table=table,
                first_seq=table.first_seq,
                last_seq=table.last_seq,
                last_tick=self._clock.last_tick,
                replay_after_wal_id=stamp,
                tracked=tuple(self._tracked),
                segments=ROOT_TREE if self.route is None else self.route.take(),
                size_bytes=table.size_bytes,
            )
        )
        self._tracked.clear()
        self._frozen_bytes += table.size_bytes
        self._frozen_rows += table.row_count
        self._last_freeze_wal_id = stamp
        self.on_freeze()

    def _follow(self, table: Memtable) -> None:
        self.table = table
        self.history.follow(table)
        if self.wal is not None:
            self.wal.follow(table)
        self._set_attention()
        self.on_tables()

    def _track(self, seq: int) -> None:
        second = self._clock.last_tick // 1000
        if second - self._last_tracked_s >= _TRACK_EVERY_S:
            self._last_tracked_s = second
            self._tracked.append((seq, second))

    def freeze_wal(self) -> None:
        """Bind what the WAL lacks to a file."""
        if self.wal is not None:
            self.wal.freeze()
            self._set_attention()

    def wal_written(self) -> None:
        """A WAL file has become durable: perhaps the memtable is due, because too many files wait for it."""
        self._yielded_ms = self._now_ms()  # other tasks have just had their turn; those that waited for this come next
        if self._progress.durable_wal_id - self._last_freeze_wal_id >= self._options.max_wal_flushes_before_l0_flush:
            self.freeze()

    def expect_change(self) -> None:
        """Let the next write look at everything again: the clock, failures, pressure, whether the WAL must wake."""
        self._admitted_ms = self._open_ms = _SLOW
        self._open_s = self._shut_s = 0.0

    async def _admit(self, seq: int | None = None) -> int:
        """Wait until a write may happen and return its commit time; ``seq`` is the number that it asks for."""
        now = self._now_ms()
        if now - self._yielded_ms >= _YIELD_AFTER_MS or now < self._yielded_ms:
            # A loop of puts that never suspend would starve the tasks that make room for it.
            await anyio.lowlevel.checkpoint()
            self._yielded_ms = now
        if self.unflushed_bytes >= self._options.max_unflushed_bytes:
            await self.room()
        now = self._now_ms()
        if now < self._clock.last_tick:
            now = await self._clock.tick()
        self._clock.last_tick = now
        self.check()
        self._admitted_ms = now
        self.table.log.drop_stamps()  # they are of another millisecond, and who waited here may yet be refused
        if self.route is None and self._limits is None:
            self._open_ms = now
            self._open_s, self._shut_s = now / 1000, (now + 1) / 1000
        self._track(max(self.last_seq + 1, seq or 0))
        self.on_rows()
        return now

    def _attend(self) -> None:
        """A limit has been reached by the write that has just happened."""
        if self.table.size_bytes >= self._options.l0_sst_size_bytes:
            self.freeze()
        if self.wal is not None and self.wal.pending_bytes >= self._options.l0_sst_size_bytes:
            self.freeze_wal()
            self.on_full_wal()
        self._set_attention()
        self.expect_change()  # whether there is room for the next write is looked at before it

    def _set_attention(self) -> None:
        limit = self._options.l0_sst_size_bytes
        room = limit if self.wal is None else min(limit, limit - self.wal.pending_bytes + self.table.size_bytes)
        left = self._options.max_unflushed_bytes - self.unflushed_bytes
        # A row counts twice, in the memtable and for the WAL.  An impossible value needs attention too.
        self._attention_bytes = min(room, self.table.size_bytes + min(max(left, 0) // 2, MAX_VALUE_BYTES))


def _nothing() -> None:
    return


async def _no_wait() -> None:
    return
