"""The writer of one database: makes its parts, starts its tasks, and ends them (docs/concepts/architecture.md)."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from shale.concurrency.background_tasks import BackgroundTasks
from shale.concurrency.task_host import TaskHost
from shale.engine.flush.admission import L0Admission
from shale.engine.flush.checkpointing import Checkpointing, CheckpointRequest, PendingCheckpoints
from shale.engine.flush.committer import FlushCommitter
from shale.engine.flush.flusher import MemtableFlusher
from shale.engine.flush.poller import ManifestPoller
from shale.engine.flush.uploader import L0Uploader, TableUploader, sst_options
from shale.engine.flush.writer_manifest import WriterManifest
from shale.engine.memtable.memtable import Memtable
from shale.engine.memtable.sorted_part import merge_parts
from shale.engine.options import DbOptions, FlushType
from shale.engine.read.active_seqs import ActiveSeqs
from shale.engine.read.view_publisher import ViewPublisher
from shale.engine.wal.flusher import WalFlusher
from shale.engine.wal.recovery import WalRecovery
from shale.engine.write.claim import ClaimedDatabase
from shale.engine.write.instruments import WriterInstruments
from shale.engine.write.pipeline import WritePipeline
from shale.engine.write.wal_modes import new_durability, wal_flusher_class
from shale.env import Env
from shale.errors import ClosedError, FencedError, ProtocolPanic, ShaleError, WalDisabled
from shale.format.names import sst_key
from shale.format.sequence_tracker import SequenceTracker
from shale.iter.merge_operator import MergeOperator
from shale.protocol.markers import require_not_destroyed
from shale.protocol.wal_store import WalStore
from shale.sst.paths import SstPaths
from shale.sst.process_cache import PROCESS_CACHE
from shale.sst.reader import SstReader
from shale.store.location import Location
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Checkpoint

_GATHER_AFTER_S = 1.0
log = get_logger("writer")


class Writer:
    """One database, open for writing; the listener of its write pipeline.

    Its tasks run in a ``TaskHost``.  The first error in any of them ends all of them, and every later call raises it.

    Args:
        claim: the claimed database.
        store: holds manifests and SSTs.
        wal_files: the WAL.
        root: the path of the database in the store.
        options: limits and defaults.
        env: clock, ids, CPU.
        metrics: gets the writer's metrics.
    """

    def __init__(
        self,
        claim: ClaimedDatabase,
        store: ObjectStore,
        wal_files: WalStore,
        *,
        root: str,
        options: DbOptions,
        env: Env,
        metrics: Metrics,
    ) -> None:
        operator = options.resolve_merge_operator()
        self.location = Location(store.url, root)
        self.options = options
        self.env = env
        self.is_closed = False
        self.flushes = 0
        self.active = ActiveSeqs()
        self._background = BackgroundTasks()
        self.host = TaskHost(f"shale writer of {root}")
        self.instruments = WriterInstruments(metrics)
        self.manifest = WriterManifest(claim.manifest, env, self._on_manifest_changed, claim.checkpoint)
        self.durability = new_durability(self.manifest.current, options.wal_ack, claim.fence_id)
        self.pipeline = WritePipeline(options, env, self.manifest, self.durability, operator=operator, listener=self)
        self._claim = claim
        self._wal_files = wal_files
        self._sst_options = sst_options(options, wal_files.transformer)
        self.wal = self._new_wal_flusher()
        self._pending_checkpoints = PendingCheckpoints()
        self._committer = FlushCommitter(
            self.pipeline,
            self.manifest,
            self.durability,
            active=self.active,
            checkpoints=self._pending_checkpoints,
            options=options,
            instruments=self.instruments,
        )
        self._admission = L0Admission(self.manifest, self.durability, options, self.instruments, env)
        self._flusher = self._new_flusher(store, operator)
        self.poller = ManifestPoller(
            manifest=self.manifest,
            require_alive=partial(require_not_destroyed, store, root),
            interval_s=options.manifest_poll_interval_s,
            on_refreshed=self._flusher.wake,
            instruments=self.instruments,
        )
        self._checkpointing = Checkpointing(
            self.pipeline,
            self.manifest,
            self.durability,
            pending=self._pending_checkpoints,
            options=options,
            env=env,
            instruments=self.instruments,
        )
        reader = self._new_reader(store, metrics)
        self.views = ViewPublisher(
            self.manifest, self.pipeline.buffers, self.active, reader=reader, operator=operator, options=options
        )
        self._export(metrics)

    def _new_wal_flusher(self) -> WalFlusher | None:
        if self.pipeline.buffers.wal is None:
            return None
        return wal_flusher_class(self.manifest.current)(
            self._wal_files,
            self.pipeline,
            self.manifest,
            self.durability,
            options=self.options,
            env=self.env,
            instruments=self.instruments,
        )

    def _new_flusher(self, store: ObjectStore, operator: MergeOperator | None) -> MemtableFlusher:
        disk = PROCESS_CACHE.disk_options(self.options.disk_cache)
        is_cached = disk is not None and disk.cache_on_flush
        sst_uploader = L0Uploader(
            PROCESS_CACHE.uploads(store, disk, self.env) if is_cached else store,
            self._sst_options,
            self.instruments.counting(operator, "flush"),
            self.env,
            on_merge_failure=self.instruments.operand_failures,
        )
        uploader = TableUploader(
            sst_uploader,
            self.options,
            sst_key=partial(sst_key, self.location.path),
            min_seq=self._committer.oldest_needed_seq,
            on_failing=self.durability.changed.notify,
        )
        return MemtableFlusher(
            self.pipeline.buffers.frozen,
            self._admission,
            uploader,
            self._committer,
            manifest=self.manifest,
            env=self.env,
            instruments=self.instruments,
        )

    def _new_reader(self, store: ObjectStore, metrics: Metrics) -> SstReader:
        return SstReader(
            store,
            SstPaths.of(self.location.path, self.manifest.current),
            PROCESS_CACHE.memory(self.options.block_cache_bytes, self.options.cache),
            self.env,
            metrics,
            filter_policies=self._sst_options.filter_policies,
            disk=PROCESS_CACHE.disk(self.options.disk_cache, self.env.clock),
            transformer=self._sst_options.transformer,
            background=self._background,
        )

    @property
    def last_seq(self) -> int:
        """The newest sequence number that was assigned."""
        return self.pipeline.last_seq

    def check_readable(self) -> None:
        """Raise if reads must not happen any more.

        Raises:
            ShaleError: the error that stopped the writer, or ``ClosedError``.
        """
        self.durability.check_open()

    def clock_ms(self) -> int:
        """Return the database's clock: wall time, but never before the newest commit."""
        clock = self.pipeline.clock
        return max(clock.now_ms(), clock.last_tick)

    def sequence_tracker(self) -> SequenceTracker:
        """Return which sequence number was reached in which second, of the manifest and of rows in memory."""
        tracker = SequenceTracker.decode(self.manifest.current.sequence_tracker)
        for seq, second in self.pipeline.buffers.frozen.sequence_points:
            tracker.record(seq, second)
        return tracker

    async def start(self) -> None:
        """Start the tasks, then replay the WAL."""
        group = await self.host.start(self._host_failed)
        self._background.open(group)
        self.views.start(group)
        tasks: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("flush", partial(self._flusher.run, self.fail)),
            ("sort", self._flusher.sort),
            ("poll", self.poller.run),
        ]
        if self.wal is not None:
            tasks.append(("wal", partial(self.wal.run, self.fail)))
        for name, task in tasks:
            group.start_soon(self._watch, task, name=name)
        recovery = WalRecovery(
            self._wal_files,
            self.pipeline,
            self.manifest,
            self.durability,
            env=self.env,
            instruments=self.instruments,
        )
        await recovery.run(self._claim.fence_id, self._claim.wal_rows, self.options.l0_sst_size_bytes)
        self.durability.check()  # a task may have failed meanwhile, and then the group takes no more tasks
        group.start_soon(self._merge_replayed, self.pipeline.buffers.active, name="merge replayed parts")

    async def _merge_replayed(self, table: Memtable) -> None:
        """Merge the sorted parts of the replayed memtable, for faster lookups; skip a table that was flushed."""
        await anyio.sleep(_GATHER_AFTER_S)
        await merge_parts(table.columns, self.env.cpu)

    async def durable(self, seq: int) -> None:
        """Return once all rows up to ``seq`` are durable; see ``WriteHandle.durable``."""
        if self.durability.durable_seq >= seq:
            return
        if self.wal is not None:
            self.wal.flush_for_waiter()
        await self.durability.wait_acknowledged(seq)

    async def flush(self, kind: FlushType) -> None:
        """Flush all rows written so far to the WAL or to L0.

        Raises:
            WalDisabled: a WAL flush without a WAL.
            ShaleError: the writer failed first.
        """
        seq = self.pipeline.committed_seq
        self.flushes += 1
        self.instruments.flush_requested()
        if kind is FlushType.WAL:
            if self.wal is None:
                raise WalDisabled("a WAL flush was requested, but the WAL is disabled: flush the memtable instead")
            self.wal.request()
            await self.durability.wait_durable(seq)
        elif kind is FlushType.MEMTABLE:
            self._start_memtable_flush()
            await self.durability.wait_flushed(seq)

    async def checkpoint(self, request: CheckpointRequest) -> Checkpoint:
        """Create a checkpoint; see ``Db.checkpoint``."""
        return await self._checkpointing.create(request, self._start_memtable_flush, lambda: self._flusher.is_stuck)

    async def close(self, kind: FlushType) -> None:
        """Refuse new calls, flush as ``kind`` says, record the end of the WAL, and end all tasks.

        Raises:
            ShaleError: the writer had failed, or failed now; the outcome of rows that were not durable is unknown.
        """
        closed = self._stop_accepting()
        self._committer.stop_retrying()
        self.manifest.stop_pinning()
        try:
            self.durability.check()
            await self._flush_at_close(kind)
            await self._committer.commit_close()
        finally:
            await self._end(closed)
        log.info(Event.DB_CLOSED, flush_type=str(kind))

    async def abort(self) -> None:
        """End all tasks and write nothing more."""
        await self._end(self._stop_accepting())

    def fail(self, error: ShaleError) -> None:
        """Acknowledge nothing any more: every waiter and every later call gets this error."""
        if self.durability.problem is not None:
            return
        if isinstance(error, FencedError):
            self.instruments.fenced()
            log.warning(Event.WRITER_FENCED, epoch=self.manifest.epoch, error=str(error))
        self.durability.fail(error)
        self.views.end_tasks(error)
        self._background.close()
        self.pipeline.invalidate_fast_path()

    def on_rows_pending(self) -> None:
        """Start the timer of the next WAL flush; see ``WriteListener``."""
        if self.wal is not None:
            self.wal.start_timer()

    def on_wal_file_pending(self) -> None:
        """Upload a complete WAL file; see ``WriteListener``."""
        if self.wal is not None:
            self.wal.wake()

    def on_wal_flush_requested(self) -> None:
        """Flush the WAL; see ``WriteListener``."""
        if self.wal is not None:
            self.wal.request()

    def on_memtable_frozen(self) -> None:
        """Flush a frozen memtable; see ``WriteListener``."""
        self.instruments.table_frozen()
        self._flusher.wake()

    def on_memtables_changed(self) -> None:
        """Publish the new list of memtables; see ``WriteListener``."""
        self.views.publish()

    def _on_manifest_changed(self) -> None:
        self.views.publish()
        self.durability.status_changed.notify()
        self.instruments.describe(self.manifest.current)

    def _stop_accepting(self) -> ClosedError:
        self.is_closed = True
        self.views.disable_fast_point()
        closed = ClosedError("the database is closed: open it again")
        self.durability.stop_accepting(closed)
        self.pipeline.invalidate_fast_path()
        return closed

    async def _end(self, closed: ClosedError) -> None:
        self.views.end_tasks()
        self._background.close()
        await self.host.stop()
        self.durability.end(closed)
        self.views.reader.close()

    def _export(self, metrics: Metrics) -> None:
        self.instruments.describe(self.manifest.current)
        metrics.gauge("slatedb_manifest_writer_epoch").set(self.manifest.epoch)
        metrics.gauge("slatedb_db_unflushed_limit_bytes").set(self.options.max_unflushed_bytes)
        metrics.gauge("slatedb_db_l0_limit_ssts").set(self.options.l0_max_ssts)
        pipeline, buffers, durability = self.pipeline, self.pipeline.buffers, self.durability
        self.instruments.export(
            {
                "slatedb_db_write_ops_total": lambda: buffers.rows_written,
                "slatedb_db_write_batches_total": lambda: pipeline.write_batches,
                "slatedb_db_backpressure_total": lambda: pipeline.backpressure.waits,
                "slatedb_db_memtable_write_bytes_total": lambda: buffers.bytes_written,
            },
            {
                "slatedb_db_unflushed_bytes": lambda: buffers.unflushed_bytes,
                "slatedb_db_transaction_history_bytes": lambda: pipeline.history.size_bytes,
                "slatedb_wal_buffer_bytes": lambda: 0 if buffers.wal is None else buffers.wal.size_bytes,
                "slatedb_wal_puts_in_flight": lambda: 0 if self.wal is None else self.wal.puts_in_flight,
                "slatedb_wal_last_id": lambda: durability.durable_wal_id,
            },
        )

    async def _watch(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except ShaleError as error:
            # Before the other tasks are cancelled: none of them may acknowledge anything in between.
            self.fail(error)
            raise

    def _host_failed(self, error: BaseException) -> None:
        if not isinstance(error, ShaleError):
            error = ProtocolPanic("a background task failed", error=repr(error))
        self.fail(error)

    def _start_memtable_flush(self) -> None:
        self.pipeline.freeze()
        # The manifest must not name rows that the WAL does not have.
        self.pipeline.request_wal_flush()

    async def _flush_at_close(self, kind: FlushType) -> None:
        seq = self.pipeline.committed_seq
        if kind is FlushType.NONE:
            return
        if kind is FlushType.WAL and self.wal is not None:
            self.wal.request()
            await self.durability.wait_durable(seq)
            return
        self._start_memtable_flush()
        if self.wal is None:
            # The rows are nowhere else, so they go to L0 even if it is full.
            self._admission.ignore_stalls()
            self._flusher.wake()
        while self.durability.flushed_seq < seq:
            self.durability.check()
            if self.wal is not None and self._flusher.is_stuck and self.durability.durable_seq >= seq:
                return  # L0 is full, or the store does not answer; the rows are in the WAL for the next writer
            await self.durability.changed.wait()
