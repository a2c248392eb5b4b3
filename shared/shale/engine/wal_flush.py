"""Bringing rows to the WAL: one file after the other, each with one conditional PUT (docs/protocol.md 4.7).

``flush_interval`` 0 is adaptive: the first waiter wakes the loop, and whoever writes while its PUT is in flight shares
the next one.  Rows that nobody waits for follow after a tenth of a second.
"""

from collections.abc import Callable
from functools import partial

from shale.engine.signal import Signal
from shale.engine.wal_buffer import UnwrittenFile, WalBuffer
from shale.engine.writer_parts import WriterParts
from shale.format.transform import BlockTransformer
from shale.protocol.wal_store import WalStore
from shale.sst.wal_builder import build_wal_sst
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Compression

RowsHook = Callable[[int], None]
_IDLE_INTERVAL_S = 0.1
_INLINE_ROWS_MAX = 256
log = get_logger("wal")


class WalFlusher:
    """The only writer of WAL files.

    Args:
        parts: of the writer.
        store: of WAL files.
        buffer: what the WAL lacks.
    """

    def __init__(self, parts: WriterParts, store: WalStore, buffer: WalBuffer) -> None:
        interval_s = parts.options.flush_interval_s
        self.adaptive = interval_s == 0
        self.on_written: RowsHook = _nothing
        self._parts = parts
        self._env = parts.env
        self._store = store
        self._buffer = buffer
        self._interval_s = _IDLE_INTERVAL_S if interval_s == 0 else interval_s
        self._signal = Signal()
        self._wanted = False
        self._due_s: float | None = None

    def request(self) -> None:
        """Flush what is there, soon."""
        self._parts.instruments.wal_flush_requested()
        self._wanted = True
        self._signal.notify()

    def look(self) -> None:
        """A file is due because of its size."""
        self._signal.notify()

    def expect_rows(self) -> None:
        """Rows are coming: start the timer, if it does not run."""
        if self._due_s is None and self._interval_s is not None:
            self._due_s = self._env.clock.monotonic_s() + self._interval_s
            self._signal.notify()

    async def run(self) -> None:
        """Flush until cancelled.

        Raises:
            FencedError: another writer took a slot, or the epoch; nothing is acknowledged any more.
            ShaleError: the store refused a file.
        """
        while True:
            await self._until_due()
            self._wanted, self._due_s = False, None
            # The next write starts the timer again.
            self._parts.acceptor.expect_change()
            self._parts.acceptor.freeze_wal()
            while self._buffer.files:
                await self._flush(self._buffer.files[0])

    async def _until_due(self) -> None:
        while not self._wanted and not self._buffer.files:
            if self._due_s is None:
                await self._signal.wait()
                continue
            left_s = self._due_s - self._env.clock.monotonic_s()
            if left_s <= 0:
                return
            await self._signal.wait_for(left_s)

    async def _flush(self, file: UnwrittenFile) -> None:
        encode = partial(_encode, file, self._parts.options.compression, self._store.transformer)
        data = encode() if file.row_count <= _INLINE_ROWS_MAX else await self._env.cpu.run(encode)
        await self._store.put_new(file.id, data)
        if self._env.clock.monotonic_s() - self._parts.manifest.proved_at_s > self._parts.options.wal_stall_limit_s:
            # After a long freeze the slot may have been free only because a newer writer's fence was collected.
            await self._parts.manifest.refresh()
        assert file.id == self._parts.progress.durable_wal_id + 1, "WAL files are written in order"
        self._parts.progress.durable_wal_id = file.id
        waited_ms = self._env.clock.now_ms() - file.first_create_ts
        self._buffer.written()
        last_seq = file.last_seq
        self._parts.instruments.wal_flushed(len(data), waited_ms / 1000)
        log.debug(Event.WAL_FLUSH_OK, wal_id=file.id, first_seq=file.first_seq, last_seq=last_seq, bytes=len(data))
        self._parts.progress.durable_through(last_seq)
        self._parts.acceptor.wal_written()
        self.on_written(file.row_count)


def _encode(file: UnwrittenFile, compression: Compression, transformer: BlockTransformer | None) -> bytes:
    return build_wal_sst(file.rows(), compression, transformer)


def _nothing(_rows: int) -> None:
    return
