"""The write pipeline: takes writes, owns the memtables and the WAL buffer, freezes and retires tables.

Between its last await and its return a write runs without interruption, so sequence numbers, the order of the WAL and
the memtable agree without a lock.  All waiting (a full memory, a clock that went back, the turn of other tasks)
happens in the caller's task before anything has changed.

Source: docs/reference/protocol.md 4.4.
"""

from collections.abc import Callable, Sequence
from functools import partial

from shale.core.bytes_like import BytesLike
from shale.core.ttl import Lifetime, Timestamp, Ttl, expire_ts, resolve_lifetime
from shale.engine.flush.writer_manifest import WriterManifest
from shale.engine.memtable.frozen_table import ROOT_TREE
from shale.engine.memtable.memtable import Memtable
from shale.engine.options import DbOptions
from shale.engine.write.backpressure import Backpressure
from shale.engine.write.batch import NO_OPERATOR, WriteBatch, checked_key, checked_value
from shale.engine.write.buffers import WriteBuffers, older_segments
from shale.engine.write.clock import DbClock
from shale.engine.write.commit_history import CommitHistory
from shale.engine.write.durability import DurabilityTracker
from shale.engine.write.key_limits import require_all_inside
from shale.engine.write.segments import SegmentRouter
from shale.engine.write.write_handle import WriteHandle, WriteListener
from shale.env import Env
from shale.errors import InvalidRequestError, InvalidSequenceNumber, MergeOperatorMissing, ShaleError
from shale.iter.merge_operator import MergeOperator
from shale.kernels.rows import Rows
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry

_YIELD_AFTER_MS = 2
_NEVER = -1
_BURST_PUTS = 8
"""After this many puts in one millisecond, stamps for the next puts are prepared."""
_STAMPS_MAX = 4096
_new = object.__new__
SEQ_MAX = (1 << 63) - 1
"""The greatest sequence number that a caller may choose; numbers above it stay for later commits."""


class WritePipeline:
    """Turns writes into rows of the active memtable, whose log the WAL buffer refers to.

    Args:
        options: limits and defaults.
        env: clock and CPU.
        manifest: the writer's manifest; its L0s hold all rows except those still in the WAL.
        durability: the durable end of the WAL, with which frozen tables are stamped.
        operator: folds merge operands; ``None``: merges are refused.
        listener: learns of freezes, table changes and WAL work; also handed to write handles.
    """

    __slots__ = (
        "_admitted_ms", "_burst_ms", "_burst_start", "_consumed_wal_id", "_default_ttl_ms", "_durability", "_env",
        "_fast_end_s", "_fast_ms", "_fast_start_s", "_limits", "_listener", "_max_key_bytes", "_now_ms", "_operator",
        "_options", "_seq_before_skip", "_skipped_seq", "_wall_s", "_yielded_ms", "backpressure", "batch_rows",
        "buffers", "clock", "deletes", "history", "last_seq", "merges", "route", "write_batches",
    )  # fmt: skip

    def __init__(
        self,
        options: DbOptions,
        env: Env,
        manifest: WriterManifest,
        durability: DurabilityTracker,
        *,
        operator: MergeOperator | None,
        listener: WriteListener,
    ) -> None:
        state = manifest.current
        self.last_seq: int = state.last_l0_seq
        """The newest sequence number that was assigned, also to a commit that was refused afterwards."""
        self.clock = DbClock(env, state.last_l0_clock_tick)
        self.buffers = WriteBuffers(options, state, durability.durable_wal_id + 1)
        self.history = CommitHistory(self.buffers.active, options.max_transaction_history_bytes)
        self.backpressure = Backpressure(self.buffers, durability, options, env)
        self.route: SegmentRouter | None = None
        if options.segment_extractor is not None:
            older = partial(older_segments, self.buffers, manifest)
            self.route = SegmentRouter(options.segment_extractor, older, durability.status_changed.notify)
        self.merges = self.write_batches = self.deletes = self.batch_rows = 0
        self._options = options
        self._env = env
        self._durability = durability
        self._operator = operator
        self._listener = listener
        self._limits = options.enforce_visible_range
        self._max_key_bytes = options.max_key_bytes
        self._default_ttl_ms = options.default_ttl_ms
        self._now_ms = self.clock.now_ms
        self._wall_s = self.clock.wall_s
        self._skipped_seq = _NEVER
        self._seq_before_skip = 0
        self._consumed_wal_id: int = state.replay_after_wal_id
        self._admitted_ms = _NEVER
        """Commits of this millisecond skip ``_admit``."""
        self._fast_ms = _NEVER
        """Puts of this millisecond also skip routing and range checks."""
        self._fast_start_s = self._fast_end_s = 0.0
        """The wall time at which ``_fast_ms`` begins and ends, in seconds."""
        self._yielded_ms = 0
        self._burst_ms = _NEVER
        """The millisecond of the last put off the fast path, and the log's length at the first one in it."""
        self._burst_start = 0

    @property
    def committed_seq(self) -> int:
        """The newest sequence number of a commit; ``last_seq`` is higher if later commits were refused."""
        return self._seq_before_skip if self.last_seq == self._skipped_seq else self.last_seq

    async def put(self, key: BytesLike, value: BytesLike) -> WriteHandle:
        """Write one value with the database's default lifetime."""
        if self._fast_start_s <= self._wall_s() < self._fast_end_s and self.buffers.active.append_plain(key, value):
            self.last_seq = seq = self.last_seq + 1
            # Calling ``WriteHandle`` would take longer than the rest of this block, so the slots are filled here.
            handle = _new(WriteHandle)
            handle.seq = seq
            handle.create_ts = self._fast_ms
            handle._waiter = self._listener
            return handle
        key, value = checked_key(key, self._max_key_bytes), checked_value(value)
        handle = await self._append(key, value, 0, self._default_ttl_ms)
        self._prepare_burst(handle.create_ts)
        return handle

    def _prepare_burst(self, now: int) -> None:
        """Prepare the stamps of the next puts, if many puts of this millisecond came off the fast path."""
        log = self.buffers.active.log
        place = len(log)
        recent = place - self._burst_start
        if now != self._burst_ms:
            self._burst_ms, self._burst_start = now, place
        if recent >= _BURST_PUTS and now == self._fast_ms:
            log.stamp_ahead(min(recent, _STAMPS_MAX), self.last_seq + 1, now, self._default_ttl_ms)

    async def put_with_options(
        self, key: BytesLike, value: BytesLike, ttl: Ttl, expire_at: Timestamp | None, seq: int | None = None
    ) -> WriteHandle:
        """Write one value with its own lifetime or sequence number."""
        key, value = checked_key(key, self._max_key_bytes), checked_value(value)
        return await self._append(key, value, 0, resolve_lifetime(ttl, expire_at, self._default_ttl_ms), seq)

    async def delete(self, key: BytesLike, seq: int | None = None) -> WriteHandle:
        """Write one tombstone."""
        handle = await self._append(checked_key(key, self._max_key_bytes), b"", FLAG_TOMBSTONE, None, seq)
        self.deletes += 1
        return handle

    async def merge(
        self, key: BytesLike, operand: BytesLike, ttl: Ttl, expire_at: Timestamp | None, seq: int | None = None
    ) -> WriteHandle:
        """Write one merge operand."""
        if self._operator is None:
            raise MergeOperatorMissing(NO_OPERATOR)
        key = checked_key(key, self._max_key_bytes)
        # As in SlateDB the operator checks every operand before it is stored: an operand that it cannot fold would
        # otherwise fail in the flush of the memtable.
        operand = self._operator(key, None, (checked_value(operand),))
        handle = await self._append(
            key, operand, FLAG_MERGE, resolve_lifetime(ttl, expire_at, self._default_ttl_ms), seq
        )
        self.merges += 1
        return handle

    async def _append(
        self, key: bytes, value: bytes, flags: int, lifetime: Lifetime, chosen_seq: int | None = None
    ) -> WriteHandle:
        """Write one row of any kind."""
        if self._limits is not None:
            require_all_inside(self._limits, (key,))
        if chosen_seq is not None:
            self._next_seq(chosen_seq)  # refuse an impossible number before anything records it
        now = await self._admit(chosen_seq) if self._now_ms() != self._admitted_ms else self._admitted_ms
        # No await from here to the end.
        seq = self.last_seq + 1 if chosen_seq is None else self._next_seq(chosen_seq)
        if self.route is not None:
            try:
                self.route.admit(key)
            except ShaleError:
                self._skip(seq)
                raise
        self.last_seq = seq
        flags, expires = flags | FLAG_CREATE_TS, 0
        if lifetime is not None:
            flags, expires = flags | FLAG_EXPIRE_TS, expire_ts(lifetime, now)
        buffers = self.buffers
        buffers.active.append(Entry(key, value, seq, flags, now, expires))
        if buffers.active.size_bytes >= buffers.threshold_bytes:
            self._check_thresholds()
        return WriteHandle(seq, now, self._listener)

    async def write(
        self, batch: WriteBatch, seq: int | None = None, guard: Callable[[], None] | None = None
    ) -> WriteHandle:
        """Write a batch as one commit: one sequence number, one WAL file.

        Args:
            batch: read when the commit happens.
            seq: the sequence number; ``None``: the next one.
            guard: called right before the commit, with no await in between; raises to refuse the commit.

        Raises:
            InvalidRequestError: the batch is empty.
            InvalidSequenceNumber: ``seq`` is not above the last one.
            MergeOperatorMissing, IncompatibleMergeTtls, MergeOperatorFailed: the merges cannot be folded.
        """
        if not len(batch):
            raise InvalidRequestError("the batch is empty")
        self._next_seq(seq)  # refuse an impossible number before anything records it
        now = await self._admit(seq) if self._now_ms() != self._admitted_ms else self._admitted_ms
        # No await from here to the end.
        seq = self._next_seq(seq)
        try:
            if guard is not None:
                guard()
            rows = batch.commit_rows(self._default_ttl_ms, self._operator)
            if not rows.keys:
                raise InvalidRequestError("the batch was emptied before it could be written")
            if self._limits is not None:
                require_all_inside(self._limits, rows.keys)
            if self.route is not None:
                self.route.admit_all(self.route.segments_of(rows.keys))
        except ShaleError:
            self._skip(seq)
            raise
        self.last_seq = seq
        size = self.buffers.active.append_commit(rows, seq, now, has_operands=batch.has_merges)
        self.batch_rows += len(rows.keys)
        self.write_batches += 1
        if size >= self.buffers.threshold_bytes:
            self._check_thresholds()
        return WriteHandle(seq, now, self._listener)

    async def write_columns(self, rows: Rows, lifetime: Lifetime, segments: Sequence[bytes] = ()) -> WriteHandle:
        """Write rows that are already in columns as one commit.

        Args:
            rows: at least one, in key order, one row per key.  The pipeline takes them over and stamps them.
            lifetime: of all rows.
            segments: the segments of the rows, in a segmented database.
        """
        if self._limits is not None:
            require_all_inside(self._limits, (rows.key(0), rows.key(len(rows) - 1)))
        now = await self._admit() if self._now_ms() != self._admitted_ms else self._admitted_ms
        # No await from here to the end.
        seq = self.last_seq + 1
        if self.route is not None:
            try:
                self.route.admit_all(segments)
            except ShaleError:
                self._skip(seq)
                raise
        buffers = self.buffers
        buffers.active.log.drop_stamps()
        self.last_seq = seq
        rows.seq.fill(seq)
        rows.create_ts.fill(now)
        if lifetime is not None:
            rows.flags.fill(FLAG_CREATE_TS | FLAG_EXPIRE_TS)
            rows.expire_ts.fill(expire_ts(lifetime, now))
        if buffers.wal is None:
            buffers.active.append_columns(rows)
        else:
            buffers.wal.append_columns(rows)
        self.batch_rows += len(rows)
        self.write_batches += 1
        if buffers.active.size_bytes >= buffers.threshold_bytes:
            self._check_thresholds()
        return WriteHandle(seq, now, self._listener)

    def freeze(self) -> None:
        """Freeze the active memtable and stamp it with the durable end of the WAL; an empty table stays active."""
        if len(self.buffers.active):
            self._freeze(self._durability.durable_wal_id)
            self._set_active(Memtable())

    def install(
        self, table: Memtable, last_seq: int, last_tick: int | None, *, wal_id: int, segments: Sequence[bytes] = ()
    ) -> None:
        """Make a table of replayed rows the active memtable; the table before it is frozen.

        Args:
            table: the rows of a range of WAL files.
            last_seq: the newest sequence number of the rows.
            last_tick: the newest commit time of the rows in milliseconds, if they have any.
            wal_id: this table and its predecessors hold all rows of WAL files up to this id.
            segments: the segments of the rows, ascending.
        """
        if len(self.buffers.active):
            # Not the durable end of the WAL: that covers files that are still to be replayed.
            self._freeze(self._consumed_wal_id)
        if self.route is not None:
            self.route.restore(segments)
        self._consumed_wal_id = wal_id
        self.last_seq = max(self.last_seq, last_seq)
        if last_tick is not None:
            self.clock.last_tick = max(self.clock.last_tick, last_tick)
        self.buffers.frozen.record_point(last_seq, self.clock.last_tick)
        self.buffers.count_replayed(table)
        self._set_active(table)

    def skip_replayed(self, wal_id: int) -> None:
        """Record that replay has passed WAL files up to ``wal_id`` that have no rows."""
        self._consumed_wal_id = wal_id

    def retire(self, count: int) -> None:
        """Drop the oldest ``count`` frozen tables; the caller publishes the manifest that names their rows."""
        self.buffers.frozen.retire(count)

    def freeze_wal(self) -> None:
        """Bind all buffered rows to a WAL file."""
        self.buffers.freeze_wal()

    def request_wal_flush(self) -> None:
        """Bring the buffered rows to the WAL soon: a flush to L0 waits for them."""
        if self.buffers.wal is not None:
            self._listener.on_wal_flush_requested()

    async def forget_flushed(self, tables: Sequence[Memtable]) -> None:
        """Keep nothing of flushed tables but the keys that open transactions may conflict with."""
        await self.history.flushed(tables, self._env)

    def wal_written(self) -> None:
        """Record that a WAL file became durable; freeze the memtable if too many files wait for its flush."""
        self._yielded_ms = self._now_ms()  # other tasks had their turn during the PUT
        files = self._durability.durable_wal_id - self.buffers.frozen.replay_after_wal_id
        if files >= self._options.max_wal_flushes_before_l0_flush:
            self.freeze()

    def invalidate_fast_path(self) -> None:
        """Send the next write through ``_admit``: it checks the clock, failures, memory and the WAL timer again."""
        self._admitted_ms = self._fast_ms = _NEVER
        self._fast_start_s = self._fast_end_s = 0.0

    def _freeze(self, wal_id: int) -> None:
        segments = ROOT_TREE if self.route is None else self.route.take()
        self.buffers.freeze(wal_id=wal_id, last_tick=self.clock.last_tick, segments=segments)
        self._listener.on_memtable_frozen()

    def _set_active(self, table: Memtable) -> None:
        self.buffers.set_active(table)
        self.history.set_active(table)
        self._listener.on_memtables_changed()

    def _next_seq(self, wanted: int | None) -> int:
        if wanted is None:
            return self.last_seq + 1
        if type(wanted) is not int or not 0 < wanted <= SEQ_MAX:
            raise InvalidRequestError(f"seq: {wanted!r} is no number from 1 to {SEQ_MAX}")
        if wanted <= self.last_seq:
            raise InvalidSequenceNumber(f"seq {wanted} is not above {self.last_seq}, the last one")
        return wanted

    def _skip(self, seq: int) -> None:
        """Use up the sequence number of a commit that was refused, as SlateDB does."""
        self.buffers.active.log.drop_stamps()
        if self._skipped_seq != self.last_seq:
            self._seq_before_skip = self.last_seq
        self._skipped_seq = self.last_seq = seq

    async def _admit(self, seq: int | None = None) -> int:
        """Wait until a write may happen and return its commit time; ``seq`` is the number that the caller chose."""
        now = self._now_ms()
        if now - self._yielded_ms >= _YIELD_AFTER_MS or now < self._yielded_ms:
            # A loop of puts that never suspends would starve the flush tasks.
            await self.backpressure.give_way()
            self._yielded_ms = now
        if self.buffers.unflushed_bytes >= self._options.max_unflushed_bytes:
            await self.backpressure.wait_for_capacity()
        now = self._now_ms()
        if now < self.clock.last_tick:
            now = await self.clock.tick()
        self.clock.last_tick = now
        self._durability.check_open()
        self._admitted_ms = now
        # The stamps carry another millisecond, and a write that waited here may still be refused.
        self.buffers.active.log.drop_stamps()
        if self.route is None and self._limits is None:
            self._fast_ms = now
            self._fast_start_s, self._fast_end_s = now / 1000, (now + 1) / 1000
        self.buffers.frozen.record_point(max(self.last_seq + 1, seq or 0), now)
        self._listener.on_rows_pending()
        return now

    def _check_thresholds(self) -> None:
        """Freeze the buffers that the last write has filled."""
        is_separate = self.buffers.separate_large_commit()
        if self.buffers.is_memtable_full:
            self.freeze()
        if is_separate or self.buffers.is_wal_full:
            self.freeze_wal()
            self._listener.on_wal_file_pending()
        self.buffers.update_threshold()
        self.invalidate_fast_path()  # the next write checks the memory in use
