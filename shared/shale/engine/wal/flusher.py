"""Flushes the WAL buffer: WAL files are written one after the other, each with one conditional PUT.

Two flushes start at least ``flush_interval`` apart, unless a flush is requested or a file is full.  Rows without a
waiter stay in the buffer for this long.  A waiter does not wait for the timer: its flush starts at once if the last one
started an interval ago, so a single durable write takes one request, and a busy writer makes 1 / ``flush_interval``
requests a second.

With ``flush_interval`` 0 the first waiter always starts a PUT, and rows written during the PUT share the next one.
Rows without a waiter are flushed after a tenth of a second.

Source: docs/reference/protocol.md 4.7.
"""

from collections.abc import Callable
from functools import partial
from math import inf

from shale.concurrency.signal import Signal
from shale.core.bytes_like import BytesLike
from shale.engine.flush.writer_manifest import WriterManifest
from shale.engine.options import DbOptions
from shale.engine.wal.buffer import PendingWalFile, WalBuffer
from shale.engine.write.durability import DurabilityTracker
from shale.engine.write.instruments import WriterInstruments
from shale.engine.write.pipeline import WritePipeline
from shale.env import Env
from shale.errors import FencedError, ShaleError
from shale.format.blocks.transform import BlockTransformer
from shale.protocol.wal_store import WalStore
from shale.sst.wal_builder import wal_sst_parts
from shale.telemetry import tracing
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Compression

_IDLE_INTERVAL_S = 0.1
_INLINE_ROWS_MAX = 256
"""Files with more rows are encoded in a thread."""
log = get_logger("wal")


class WalFlusher:
    """Writes the WAL files of this writer; only the fence of its start is written elsewhere (``protocol.wal_fence``).

    Args:
        store: the WAL files.
        pipeline: fixes the rows of each file, and owns the WAL buffer.
        manifest: proves, after a long stall, that this writer is not fenced.
        durability: told of each durable file.
        options: flush interval, compression, stall limit.
        env: clock and CPU.
        instruments: counts files and bytes.
    """

    def __init__(
        self,
        store: WalStore,
        pipeline: WritePipeline,
        manifest: WriterManifest,
        durability: DurabilityTracker,
        *,
        options: DbOptions,
        env: Env,
        instruments: WriterInstruments,
    ) -> None:
        assert pipeline.buffers.wal is not None, "the WAL is enabled"
        interval_s = options.flush_interval_s
        self._store = store
        self._pipeline = pipeline
        self._buffer: WalBuffer = pipeline.buffers.wal
        self._manifest = manifest
        self._durability = durability
        self._compression = options.compression
        self._stall_limit_s = options.wal_stall_limit_s
        self._env = env
        self._instruments = instruments
        self._adaptive = interval_s == 0
        self._interval_s = _IDLE_INTERVAL_S if interval_s == 0 else interval_s
        self._signal = Signal()
        self._requested = False
        self.puts_in_flight = 0
        """Files that are being written now."""
        self._due_s: float | None = None
        """When the buffered rows are flushed; ``None``: there are none, or only a request flushes them."""
        self._next_s = -inf
        """An interval after the start of the last flush."""

    def request(self) -> None:
        """Flush the buffered rows as soon as possible."""
        self._instruments.wal_flush_requested()
        self._requested = True
        self._signal.notify()

    def flush_for_waiter(self) -> None:
        """Flush the buffered rows as soon as the interval allows it, because a caller waits for their durability."""
        if self._adaptive:
            self.request()
        elif self._due_s is not None and self._next_s < self._due_s:
            self._due_s = self._next_s
            self._signal.notify()

    def wake(self) -> None:
        """Upload a file that is complete."""
        self._signal.notify()

    def start_timer(self) -> None:
        """Flush after the interval, unless the timer runs already."""
        if self._due_s is None and self._interval_s is not None:
            self._due_s = self._env.clock.monotonic_s() + self._interval_s
            self._signal.notify()

    async def run(self, fail: Callable[[ShaleError], None] | None = None) -> None:  # noqa: ARG002
        """Flush until cancelled.

        Args:
            fail: called with an error that is raised only later (``ParallelWalFlusher``).

        Raises:
            FencedError: another writer took the id of a file, or claimed a newer epoch.
            ProtocolPanic: a writer with the same epoch took the id of a file.
            ShaleError: the store refused a file.
        """
        while True:
            if await self._wait_until_due():
                self._freeze_buffered()
            while self._buffer.files:
                await self._flush(self._buffer.files[0])

    def _freeze_buffered(self) -> None:
        """Bind all buffered rows to a file, and begin the next interval."""
        self._requested, self._due_s = False, None
        if self._interval_s is not None:
            self._next_s = self._env.clock.monotonic_s() + self._interval_s
        self._pipeline.invalidate_fast_path()  # the next write starts the timer
        self._pipeline.freeze_wal()

    async def _wait_until_due(self) -> bool:
        """Wait until there is something to write; return whether it includes the buffered rows, or only whole files."""
        while not self._requested:
            left_s = None if self._due_s is None else self._due_s - self._env.clock.monotonic_s()
            if left_s is not None and left_s <= 0:
                return True
            if self._buffer.files:
                return False
            if left_s is None:
                await self._signal.wait()
            else:
                await self._signal.wait_for(left_s)
        return True

    async def _flush(self, file: PendingWalFile) -> None:
        """Write one file and advance the durable frontier."""
        with tracing.flush("wal.flush", **{"slatedb.seq": file.last_seq, "slatedb.wal_id": file.id}):
            size = await self._put(file)
        assert file.id == self._durability.durable_wal_id + 1, "WAL files are written in order"
        self._durability.durable_wal_id = file.id
        self._buffer.remove_written()
        self._record(file, size)
        self._durability.advance_durable(file.last_seq)
        self._pipeline.wal_written()

    async def _put(self, file: PendingWalFile) -> int:
        """Write one file and return its size.

        Raises:
            FencedError: another writer took its id, or claimed a newer epoch.
        """
        encode = partial(_encode, file, self._compression, self._store.transformer)
        parts = encode() if file.row_count <= _INLINE_ROWS_MAX else await self._env.cpu.run(encode)
        self.puts_in_flight += 1
        try:
            await self._store.put_or_raise_fenced(file.id, parts, epoch=self._manifest.epoch)
        except FencedError:
            raise  # it has an event of its own
        except ShaleError as error:
            log.error(
                Event.WAL_FLUSH_FAILED, wal_id=file.id, first_seq=file.first_seq, last_seq=file.last_seq, error=error
            )
            raise
        finally:
            self.puts_in_flight -= 1
        if self._env.clock.monotonic_s() - self._manifest.proved_at_s > self._stall_limit_s:
            # During a long stall a newer writer's fence may have been collected, which freed this id for us.
            await self._manifest.refresh()
        return sum(map(len, parts))

    def _record(self, file: PendingWalFile, size: int) -> None:
        waited_ms = self._env.clock.now_ms() - file.first_create_ts
        self._instruments.wal_flushed(size, waited_ms / 1000)
        log.debug(Event.WAL_FLUSH_OK, wal_id=file.id, first_seq=file.first_seq, last_seq=file.last_seq, bytes=size)


def _encode(file: PendingWalFile, compression: Compression, transformer: BlockTransformer | None) -> list[BytesLike]:
    return wal_sst_parts(file.pieces(), compression, transformer)
