"""The memory of a writer: the active memtable, the frozen memtables and the WAL buffer."""

from collections.abc import Iterator, Sequence

from shale.engine.flush.writer_manifest import WriterManifest
from shale.engine.memtable.frozen_table import FrozenTables
from shale.engine.memtable.memtable import ROW_OVERHEAD_BYTES, Memtable
from shale.engine.options import MAX_VALUE_BYTES, DbOptions
from shale.engine.wal.buffer import WalBuffer
from shale.types import Manifest


class WriteBuffers:
    """Rows that are not in L0 yet, and how many bytes they take.  Only ``WritePipeline`` changes them.

    Args:
        options: the size limits.
        manifest: the claimed manifest.
        next_wal_id: the id of the first WAL file that this writer writes.
    """

    __slots__ = (
        "_flush_bytes",
        "_max_key_bytes",
        "_max_unflushed_bytes",
        "_replayed_bytes",
        "_replayed_rows",
        "_skip_bytes",
        "_wal_flush_bytes",
        "active",
        "frozen",
        "threshold_bytes",
        "wal",
    )

    def __init__(self, options: DbOptions, manifest: Manifest, next_wal_id: int) -> None:
        self.active = Memtable()
        self.frozen = FrozenTables(manifest)
        self.wal = WalBuffer(next_wal_id, self.active) if options.wal_enabled else None
        """Rows that the WAL does not have yet; ``None`` with the WAL disabled."""
        self.threshold_bytes = 0
        """At this size of the active memtable, a buffer may have reached a limit."""
        self._flush_bytes = options.l0_sst_size_bytes
        self._wal_flush_bytes = options.wal_flush_bytes or options.l0_sst_size_bytes
        self._skip_bytes = options.skip_memtable_bytes or MAX_VALUE_BYTES
        self._max_unflushed_bytes = options.max_unflushed_bytes
        self._max_key_bytes = options.max_key_bytes
        self._replayed_bytes = self._replayed_rows = 0
        self.update_threshold()

    @property
    def unflushed_bytes(self) -> int:
        """Estimated bytes of memtables and WAL buffer together."""
        return self.active.size_bytes + self.frozen.size_bytes + self.wal_buffer_bytes

    @property
    def wal_buffer_bytes(self) -> int:
        """Bytes of rows that are not in a WAL file yet."""
        return self.wal.size_bytes if self.wal is not None else 0

    @property
    def is_draining(self) -> bool:
        """Whether a flush is due or under way that will free memory."""
        return bool(self.frozen.tables or (self.wal is not None and self.wal.size_bytes))

    @property
    def is_memtable_full(self) -> bool:
        """Whether the active memtable is due for a flush."""
        return self.active.size_bytes >= self._flush_bytes

    @property
    def is_wal_full(self) -> bool:
        """Whether the rows without a WAL file are due for one."""
        return self.wal is not None and self.wal.pending_bytes >= self._wal_flush_bytes

    @property
    def rows_written(self) -> int:
        """Rows written since the start, without replayed rows."""
        return self.frozen.rows_total + len(self.active) - self._replayed_rows

    @property
    def bytes_written(self) -> int:
        """Bytes of keys and values written since the start, without replayed rows."""
        written = self.frozen.write_bytes_total + self.active.size_bytes - self._replayed_bytes
        return written - ROW_OVERHEAD_BYTES * self.rows_written

    def freeze(self, *, wal_id: int, last_tick: int, segments: tuple[bytes, ...]) -> None:
        """Freeze the active memtable, which has rows; see ``FrozenTables.append``.  ``set_active`` must follow."""
        self.frozen.append(self.active, wal_id=wal_id, last_tick=last_tick, segments=segments)

    def set_active(self, table: Memtable) -> None:
        """Write to another memtable from now on."""
        self.active = table
        if self.wal is not None:
            self.wal.set_active(table)
        self.update_threshold()

    def count_replayed(self, table: Memtable) -> None:
        """Leave the rows of a replayed table out of ``rows_written`` and ``bytes_written``."""
        self._replayed_bytes += table.size_bytes
        self._replayed_rows += len(table)

    def freeze_wal(self) -> None:
        """Bind all rows without a WAL file to a new one."""
        if self.wal is not None:
            self.wal.freeze()
            self.update_threshold()

    def separate_large_commit(self) -> bool:
        """Bind the last commit to a WAL file of its own, if it has ``skip_memtable_bytes``; return whether it has."""
        if self.wal is None or self._skip_bytes == MAX_VALUE_BYTES:
            return False
        return self.wal.separate_last_commit(self._skip_bytes)

    def update_threshold(self) -> None:
        """Compute ``threshold_bytes`` again, after a buffer has changed other than by a write."""
        limit, size = self._flush_bytes, self.active.size_bytes
        room = limit if self.wal is None else min(limit, self._wal_flush_bytes - self.wal.pending_bytes + size)
        left = self._max_unflushed_bytes - self.unflushed_bytes
        # A row counts twice, in the memtable and in the WAL buffer.  With ``_skip_bytes``, ``append_plain`` refuses
        # commits that get a file of their own, and values that are too large to be stored.
        self.threshold_bytes = min(room, size + min(max(left, 0) // 2, self._skip_bytes))
        self.active.limit_plain(self._max_key_bytes, self.threshold_bytes)


def older_segments(buffers: WriteBuffers, manifest: WriterManifest) -> Iterator[Sequence[bytes]]:
    """Yield the segments of each frozen memtable, then those of the manifest."""
    for frozen in buffers.frozen.tables:
        yield frozen.segments
    yield [segment.prefix for segment in manifest.current.segments]
