"""The parts of a writer, wired together and run: what ``Db`` is a front of."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from shale.engine.accept import Acceptor
from shale.engine.active_seqs import ActiveSeqs
from shale.engine.checkpointing import Checkpointing, WaitingCheckpoints
from shale.engine.clock import DbClock
from shale.engine.column_parts import gather_parts
from shale.engine.l0_upload import L0Uploader
from shale.engine.lifetime import Lifetime
from shale.engine.live_views import LiveViews
from shale.engine.memtable import Memtable
from shale.engine.memtable_flush import MemtableFlusher
from shale.engine.open import Claim
from shale.engine.options import DbOptions, FlushType
from shale.engine.pressure import Pressure
from shale.engine.progress import Progress
from shale.engine.segments import SegmentRouter
from shale.engine.task_host import TaskHost
from shale.engine.wal_flush import WalFlusher
from shale.engine.write_handle import WriteHandle
from shale.engine.writer_instruments import WriterInstruments
from shale.engine.writer_parts import WriterParts
from shale.engine.writer_replay import replay_into
from shale.env import Env
from shale.errors import ClosedError, FencedError, ProtocolPanic, ShaleError, WalDisabled
from shale.format.names import sst_key
from shale.format.sequence_tracker import SequenceTracker
from shale.format.transform import BlockTransformer
from shale.iter.merge_operator import MergeOperator
from shale.merge_operators import operator_of
from shale.protocol.markers import require_not_destroyed
from shale.protocol.wal_store import WalStore
from shale.sst.options import SstOptions
from shale.sst.paths import SstPaths
from shale.sst.process_cache import PROCESS_CACHE
from shale.sst.reader import SstReader
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

_GATHER_AFTER_S = 1.0
log = get_logger("writer")


class Writer:
    """One database, open for writing.

    Its tasks live in a ``TaskHost``; the first error in any of them ends all of them, and every later call raises it.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        store: ObjectStore,
        wal_files: WalStore,
        root: str,
        options: DbOptions,
        env: Env,
        metrics: Metrics,
    ) -> None:
        state = claim.manifest.current
        operator = operator_of(options.merge_operator)
        self.root = root
        self.options = options
        self.env = env
        self.manifest = claim.manifest
        self.fence_id = claim.fence_id
        self._read_rows = claim.wal_rows
        self.instruments = WriterInstruments(metrics)
        self.progress = Progress(state.last_l0_seq, claim.fence_id)
        self.host = TaskHost(f"shale writer of {root}")
        self.is_closed = False
        self.flushes = 0
        self.active = ActiveSeqs()
        self.clock = DbClock(env, state.last_l0_clock_tick)
        self.acceptor = Acceptor(options, self.clock, self, operator, state=state, progress=self.progress)
        self.parts = parts = WriterParts(
            acceptor=self.acceptor,
            active=self.active,
            manifest=self.manifest,
            progress=self.progress,
            options=options,
            env=env,
            instruments=self.instruments,
        )
        self.wal_files = wal_files
        self.wal = None if self.acceptor.wal is None else WalFlusher(parts, wal_files, self.acceptor.wal)
        self.pressure = Pressure(parts)
        sst_options = _sst_options(options, wal_files.transformer)
        waiting = WaitingCheckpoints()
        self.flusher = self._new_flusher(store, sst_options, operator, waiting)
        self.checkpointing = Checkpointing(parts, waiting, start_flush=self._start_memtable_flush)
        self.views = LiveViews(parts, self._new_reader(store, sst_options, metrics), operator)
        self._connect()
        self._export(metrics)

    def _new_flusher(
        self, store: ObjectStore, sst_options: SstOptions, operator: MergeOperator | None, waiting: WaitingCheckpoints
    ) -> MemtableFlusher:
        counting = self.instruments.counting(operator, "flush")
        refused = self.instruments.operands_refused
        return MemtableFlusher(
            self.parts,
            L0Uploader(store, sst_options, counting, self.env, on_refused=refused),
            sst_key=partial(sst_key, self.root),
            want_durable=self._want_durable,
            checkpoints=waiting,
            require_alive=partial(require_not_destroyed, store, self.root),
        )

    def _new_reader(self, store: ObjectStore, sst_options: SstOptions, metrics: Metrics) -> SstReader:
        options = self.options
        return SstReader(
            store,
            SstPaths.of(self.root, self.manifest.current),
            PROCESS_CACHE.memory(options.block_cache_bytes, options.cache),
            self.env,
            metrics,
            filter_policies=sst_options.filter_policies,
            disk=PROCESS_CACHE.disk(options.disk_cache, self.env.clock),
            transformer=sst_options.transformer,
        )

    @property
    def last_seq(self) -> int:
        """The newest sequence number that was given out."""
        return self.acceptor.last_seq

    def check_readable(self) -> None:
        """Raise if reads must not happen any more.

        Raises:
            ShaleError: why the writer has failed, or that it is closed.
        """
        if self.progress.problem is not None or self.is_closed:
            self.pressure.check()

    def clock_ms(self) -> int:
        """The database's clock: wall time, never behind a commit."""
        return max(self.clock.now_ms(), self.clock.last_tick)

    def seq_times(self) -> SequenceTracker:
        """Which sequence number was reached in which second: what the manifest knows, and what it does not know yet."""
        tracker = SequenceTracker.decode(self.manifest.current.sequence_tracker)
        for seq, second in self.acceptor.tracked():
            tracker.record(seq, second)
        return tracker

    async def start(self) -> None:
        """Start the tasks, then replay the WAL."""
        group = await self.host.start(self._host_failed)
        run_hot_path = self.views.start(group)
        tasks: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("flush", partial(self.flusher.run, self.fail)),
            ("sort", self.flusher.sort),
            ("poll", self.flusher.poll),
            ("hot path", run_hot_path),
        ]
        if self.wal is not None:
            tasks.append(("wal", self.wal.run))
        for name, task in tasks:
            group.start_soon(self._watch, task, name=name)
        await replay_into(self.parts, self.wal_files, last_id=self.fence_id, known=self._read_rows)
        await self.manifest.begin(keeps_checkpoint=self.options.writer_checkpoint)
        group.start_soon(self._gather, self.acceptor.table, name="gather")

    async def _gather(self, table: Memtable) -> None:
        """Put what was replayed together, for faster lookups, unless it was flushed at once."""
        await anyio.sleep(_GATHER_AFTER_S)
        await gather_parts(table.columns, self.env.cpu)

    async def write_arrow(
        self, rows: Any, *, key: str, value: str, lifetime: Lifetime, rows_per_commit: int | None
    ) -> WriteHandle:
        """Write Arrow columns; see ``Db.write_arrow``."""
        from shale.engine.arrow_write import write_arrow

        return await write_arrow(
            self.acceptor,
            rows,
            key=key,
            value=value,
            lifetime=lifetime,
            rows_per_commit=rows_per_commit,
            options=self.options,
            env=self.env,
        )

    async def durable(self, seq: int) -> None:
        """Return once everything up to ``seq`` is durable; see ``WriteHandle.durable``."""
        if self.progress.durable_seq >= seq:
            return
        if self.wal is not None and self.wal.adaptive:
            self.wal.request()
        await self.progress.until_durable(seq)

    async def flush(self, kind: FlushType) -> None:
        """Bring everything that is written now as far as ``kind`` says.

        Raises:
            WalDisabled: a WAL flush without a WAL.
            ShaleError: the writer failed first.
        """
        seq = self.acceptor.committed_seq
        self.flushes += 1
        self.instruments.flush_requested()
        if kind is FlushType.WAL:
            if self.wal is None:
                raise WalDisabled("a WAL flush was asked for, but the WAL is disabled")
            self.wal.request()
            await self.progress.until_durable(seq)
        elif kind is FlushType.MEMTABLE:
            self._start_memtable_flush()
            await self.progress.until_flushed(seq)

    async def close(self, kind: FlushType) -> None:
        """Refuse new work, flush as asked, persist where the WAL ends, and end all tasks.

        Raises:
            ShaleError: the writer had failed, or failed now; rows that were not durable are in doubt.
        """
        self.is_closed = True
        self.views.shut()
        self.pressure.closed = closed = ClosedError("the database is closed")
        self.acceptor.expect_change()
        self.flusher.closing = True
        self.progress.changed.notify()
        try:
            self.progress.check()
            await self._flush_at_close(kind)
            await self.flusher.write_final()
        finally:
            self.views.end_tasks()
            await self.host.stop()
            self.progress.end(closed)
            self.views.reader.close()
        log.info(Event.DB_CLOSED, flush_type=str(kind))

    async def abort(self) -> None:
        """End all tasks and write nothing more."""
        self.is_closed = True
        self.views.shut()
        self.pressure.closed = closed = ClosedError("the database is closed")
        self.acceptor.expect_change()
        self.views.end_tasks()
        await self.host.stop()
        self.progress.end(closed)
        self.views.reader.close()

    def fail(self, error: ShaleError) -> None:
        """Never acknowledge anything again; every waiter and every later call gets this error."""
        if self.progress.problem is not None:
            return
        if isinstance(error, FencedError):
            self.instruments.fenced()
            log.warning(Event.WRITER_FENCED, epoch=self.manifest.epoch, error=str(error))
        self.progress.fail(error)
        self.views.reader.write_behind(None)
        self.views.shut()
        self.acceptor.expect_change()

    def _connect(self) -> None:
        acceptor = self.acceptor
        acceptor.check = self.pressure.check
        acceptor.room = self.pressure.relieved
        if self.options.segment_extractor is not None:
            acceptor.route = SegmentRouter(self.options.segment_extractor, self._older_segments)
        acceptor.on_tables = self.views.publish
        acceptor.on_freeze = self._table_frozen
        if self.wal is not None:
            acceptor.on_rows = self.wal.expect_rows
            acceptor.on_full_wal = self.wal.look
            self.wal.on_written = self.views.note_plain_rows
        self.manifest.on_change = self._manifest_changed

    def _export(self, metrics: Metrics) -> None:
        self.instruments.describe(self.manifest.current)
        metrics.gauge("slatedb_manifest_writer_epoch").set(self.manifest.epoch)
        metrics.gauge("slatedb_db_unflushed_limit_bytes").set(self.options.max_unflushed_bytes)
        metrics.gauge("slatedb_db_l0_limit_ssts").set(self.options.l0_max_ssts)
        acceptor, buffer, progress = self.acceptor, self.acceptor.wal, self.progress
        self.instruments.export(
            {
                "slatedb_db_write_ops_total": lambda: acceptor.write_ops,
                "slatedb_db_write_batches_total": lambda: acceptor.write_batches,
                "slatedb_db_backpressure_total": lambda: self.pressure.waits,
                "slatedb_db_memtable_write_bytes_total": lambda: acceptor.memtable_write_bytes,
            },
            {
                "slatedb_db_unflushed_bytes": lambda: acceptor.unflushed_bytes,
                "slatedb_db_transaction_history_bytes": lambda: acceptor.history.size_bytes,
                "slatedb_wal_buffer_bytes": lambda: 0 if buffer is None else buffer.size_bytes,
                "slatedb_wal_last_id": lambda: progress.durable_wal_id,
            },
        )

    def _older_segments(self) -> Iterator[Sequence[bytes]]:
        for frozen in self.acceptor.frozen:
            yield frozen.segments
        yield [segment.prefix for segment in self.manifest.current.segments]

    def _table_frozen(self) -> None:
        self.instruments.table_frozen()
        self.flusher.look()

    def _manifest_changed(self) -> None:
        self.views.publish()
        self.instruments.describe(self.manifest.current)

    async def _watch(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except ShaleError as error:
            # At once, before the other tasks are cancelled: none of them may acknowledge anything in between.
            self.fail(error)
            raise

    def _host_failed(self, error: BaseException) -> None:
        if not isinstance(error, ShaleError):
            error = ProtocolPanic("a background task failed", error=repr(error))
        self.fail(error)

    def _start_memtable_flush(self) -> None:
        self.acceptor.freeze()
        # The manifest must not name rows that the WAL does not have.
        self._want_durable()

    def _want_durable(self) -> None:
        if self.wal is not None:
            self.wal.request()

    async def _flush_at_close(self, kind: FlushType) -> None:
        seq = self.acceptor.committed_seq
        if kind is FlushType.NONE:
            return
        if kind is FlushType.WAL and self.wal is not None:
            self.wal.request()
            await self.progress.until_durable(seq)
            return
        self._start_memtable_flush()
        if self.wal is None:
            # The rows are nowhere else, so a full L0 gets even fuller.
            self.flusher.pass_gates()
        while self.progress.flushed_seq < seq:
            self.progress.check()
            if self.wal is not None and self.flusher.is_stuck and self.progress.durable_seq >= seq:
                return  # L0 is full or out of reach; the rows are in the WAL, and the next writer replays them
            await self.progress.changed.wait()


def _sst_options(options: DbOptions, transformer: BlockTransformer | None) -> SstOptions:
    defaults = SstOptions(
        block_size_bytes=options.block_size_bytes,
        compression=options.compression,
        min_filter_keys=options.min_filter_keys,
        transformer=transformer,
    )
    if options.filter_policies is None:
        return defaults
    return replace(defaults, filter_policies=options.filter_policies)
