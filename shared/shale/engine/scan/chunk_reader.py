"""Reads a scan from one state, while flushes, compactions and GC passes go on: objects from memory, else chunks."""

from typing import TYPE_CHECKING, Any

from shale.engine.memtable.memtable import Memtable
from shale.engine.read.pins import PinRef
from shale.engine.read.read_point import ReadPoint, SeqHold
from shale.engine.scan.cached_rows import WantedRows, append_cached, has_unsorted_rows
from shale.engine.scan.missing_blocks import MissingBlocks
from shale.engine.scan.plan import ScanPlan
from shale.engine.scan.sources import visible_source
from shale.engine.write.durability import reraise
from shale.errors import InvalidRequestError, ShaleError, SstMissing
from shale.kernels.dispatch import use_kernels
from shale.kernels.layout import scan as layout
from shale.kernels.rows import Rows
from shale.sst.spans.scan_room import ScanRoom, ScanRoomExceeded
from shale.types import UNBOUNDED, Bound, KeyRange, excluded, included

if TYPE_CHECKING:
    from shale.engine.read.super_version import SuperVersion
    from shale.sst.budget import LargeValues

TURN_S = 1.0
"""After so many seconds a scan of large values lets others go on that wait for its memory: its client may be slow."""
_ROWS_AFTER_SEEK = 64
"""A caller that seeks once probably takes a few rows and seeks again."""
_INTERRUPTED = "the scan was interrupted and cannot go on: begin another one after the last row"


class ScanChunkReader:
    """The visible rows of a plan, up to its limit: as objects where memory has them, else chunk by chunk in columns.

    The scan of a writer holds its sequence number.  It goes on in the newest super version when an SST of its own is
    gone, or when its memtables were flushed and take too much memory.
    """

    __slots__ = (
        "_error",
        "_has_begun",
        "_has_ended",
        "_has_used_turn",
        "_held",
        "_is_over",
        "_last_key",
        "_max_seq",
        "_missing",
        "_plan",
        "_range",
        "_ref",
        "_remaining",
        "_resolve",
        "_scanned_values",
        "_tries_cache",
        "_turn_ends_s",
        "_view",
        "_view_provider",
        "bytes_read",
        "key_range",
        "reverse",
    )

    def __init__(self, point: ReadPoint, plan: ScanPlan) -> None:
        """Make no request.

        Args:
            point: what to read.
            plan: which rows; ``expected_rows`` is the limit.
        """
        self.key_range = plan.key_range
        self.reverse = plan.reverse
        self._resolve = point.resolve
        self._view_provider = point.view_provider
        self._max_seq = point.max_seq
        self._held: SeqHold | None = None
        if point.view_provider is not None and point.max_seq is not None:
            self._held = point.view_provider.hold(point.max_seq)
        self._view: SuperVersion | None = point.view if self._held is None else None
        """The state to read; ``None``: the newest, which a held sequence number allows: old memtables can go."""
        self._ref: PinRef | None = None
        self._plan = plan
        self._remaining = plan.expected_rows
        self._range = plan.key_range
        self._last_key: bytes | None = None
        """The rest of the range begins after this key; ``None``: with the range."""
        self._has_begun = False
        self._has_ended = False
        """All rows were read, but may not be given yet."""
        self._tries_cache = use_kernels()
        """Whether rows may come from memory as objects, without chunks."""
        self._missing: MissingBlocks | None = None
        self.bytes_read = 0
        """Bytes that were read for the last objects: other tasks have waited for that."""
        self._scanned_values: LargeValues | None = None
        """Where this scan has taken memory for large values."""
        self._turn_ends_s = 0.0
        self._has_used_turn = False
        """Whether rows were read since it took that memory; without, two scans might take turns without end."""
        self._error: ShaleError | None = None
        self._is_over = False

    @property
    def read_range(self) -> KeyRange:
        """See ``Scan.read_range``."""
        whole = self.key_range
        if self._remaining != 0 or self._last_key is None:
            return whole
        last = included(self._last_key)
        return KeyRange(last, whole.end) if self.reverse else KeyRange(whole.start, last)

    def expect_full_read(self) -> None:
        """Read in large chunks: the caller takes all rows and does not wait for the first."""
        if not self._has_begun:
            self._plan = self._plan._replace(reads_all=True)

    @property
    def is_over(self) -> bool:
        """Whether there are no more rows to read."""
        return self._is_over

    def check(self) -> None:
        """Raise the error that ended the scan, if any."""
        if self._error is not None:
            reraise(self._error)

    def take_objects(self, rows_max: int, bytes_max: int | None = None, *, as_pairs: bool = False) -> list[Any] | None:
        """Return the next rows as objects, in the order of the scan, if memory has them; none at the end.

        Args:
            rows_max: rows at most.
            bytes_max: no more rows once keys and values have this many bytes.
            as_pairs: keys with values instead of ``Row``.

        Returns:
            ``None``: go on with ``load_objects``.
        """
        if self._ends_here():
            return []
        if not self._tries_cache or self._resolve is not None:
            return None
        rows: list[Any] = []
        try:
            view = self._newest_view()
            if has_unsorted_rows(view):
                return None
            self._has_ended = self._append_objects(rows, view, self._wanted(rows_max, bytes_max, as_pairs))
        except BaseException as error:
            self._fail(error)
            raise
        return self._count_objects(view, rows)

    async def load_objects(
        self, rows_max: int, bytes_max: int | None = None, *, as_pairs: bool = False
    ) -> list[Any] | None:
        """Return the next rows as objects after waiting for what must be known or sorted first; see ``take_objects``.

        Returns:
            ``None``: go on with ``next``, also in later calls.
        """
        if not self._tries_cache:
            return None
        rows: list[Any] = []
        try:
            view = await self._current_view()
            self._has_ended = self._append_objects(rows, view, self._wanted(rows_max, bytes_max, as_pairs))
        except BaseException as error:
            self._fail(error)
            raise
        return self._count_objects(view, rows)

    def take_back(self, last_key: bytes, count: int) -> None:
        """Take back the last ``count`` rows, which follow the row of ``last_key``."""
        self._has_ended = False
        self._restart()
        self._range, self._last_key = self.key_range, last_key
        self.return_rows(count)

    def release(self) -> None:
        """Keep nothing that was read ahead; ``take_back`` says where reading goes on."""
        self._ref = self._missing = None

    async def next(self) -> Rows | None:
        """Return the next rows, ascending in both directions; ``None`` at the end."""
        if self._ends_here():
            return None
        try:
            rows = await self._read()
        except BaseException as error:
            self._fail(error)
            raise
        if rows is None:
            self.close()
            return None
        rows = self._up_to_limit(rows)
        self._last_key = rows.key(0) if self.reverse else rows.key(len(rows) - 1)
        self._has_begun = True
        return rows

    def return_rows(self, count: int) -> None:
        """Take back rows that were read and skipped, so that the limit does not count them."""
        if self._remaining is not None:
            self._remaining += count

    def skip_to(self, key: bytes) -> None:
        """Skip what lies before a key, in the direction of reading."""
        if self._is_over:
            return
        self._range, self._last_key = self._beyond(included(key)), None
        self._restart()
        self._has_ended, self._tries_cache = False, use_kernels()
        if self._missing is not None:
            self._missing.read_less()
        wanted = self._plan.expected_rows
        self._plan = self._plan._replace(expected_rows=min(wanted or _ROWS_AFTER_SEEK, _ROWS_AFTER_SEEK))

    def close(self) -> None:
        """Release the state, so that its owner may release the checkpoint; there are no more rows."""
        self._is_over = True
        self._view = self._view_provider = self._resolve = self._ref = self._missing = None
        if self._held is not None:
            self._held.close()
            self._held = None
        if self._scanned_values is not None:
            self._scanned_values.release()
            self._scanned_values = None

    def _ends_here(self) -> bool:
        """Return whether there are no more rows, after raising the error that ended the scan."""
        self.check()
        if self._remaining == 0 or self._has_ended:
            self.close()
        return self._is_over

    def _fail(self, error: BaseException) -> None:
        """End the scan: every later call raises."""
        self.close()
        self._error = error if isinstance(error, ShaleError) else InvalidRequestError(_INTERRUPTED)

    def _wanted(self, rows_max: int, bytes_max: int | None, as_pairs: bool) -> WantedRows:
        """Return what to read from memory next."""
        last_key, limit = self._last_key, self._remaining
        if last_key is None:
            start, end = self._range.first_key, self._range.end_key
        elif self.reverse:
            start, end = self._range.first_key, last_key
        else:
            start, end = last_key + b"\0", self._range.end_key
        wanted = rows_max if limit is None or limit > rows_max else limit
        return WantedRows(start, end, self._max_seq, wanted, bytes_max, self._plan.now_ms, self.reverse, as_pairs)

    def _count_objects(self, view: "SuperVersion", rows: list[Any]) -> list[Any] | None:
        """Go on after these rows; ``None`` if there are none, and this is not the end: chunks follow, until a seek."""
        if rows:
            self._restart()  # the source of chunks stands before these rows
            self._last_key = rows[-1][0]
            self._has_begun = True
            if self._remaining is not None:
                self._remaining -= len(rows)
        elif not self._has_ended:
            self._tries_cache = False
            return None
        if self._held is None and self._ref is None:
            self._ref = view.pin.acquire()
        return rows

    def _append_objects(self, rows: list[Any], view: "SuperVersion", wanted: WantedRows) -> bool:
        """Append rows, also from blocks that can be read without waiting; return whether this is the end."""
        missing = self._missing
        if missing is None:
            answer = append_cached(rows, view, wanted)
        else:
            answer = append_cached(rows, view, wanted, windows=missing.windows(view, wanted))
            self.bytes_read = 0
        if answer & layout.STATUS_MASK in layout.MISSED and _reads_now(view):
            if missing is None:
                missing = self._missing = MissingBlocks(self._plan)
            answer = missing.append(rows, view, wanted, self._expected_rows())
            self.bytes_read = missing.take_bytes_read()
        return answer == layout.END

    def _expected_rows(self) -> int | None:
        """Return how many more rows the caller probably takes; ``None``: many."""
        expected, left = self._plan.expected_rows, self._remaining
        return left if expected is None or (left is not None and left < expected) else expected

    async def _current_view(self) -> "SuperVersion":
        """Return the state to read next, with few unsorted rows."""
        if self._resolve is not None:
            point = await self._resolve()
            self._view, self._max_seq = point.view, point.max_seq
            self._view_provider, self._resolve = point.view_provider, point.resolve
        view = self._newest_view()
        ref = view.pin.acquire()  # until the caller has its own
        for table in view.tables:
            if isinstance(table, Memtable) and table.sorted_log.has_long_tail:
                await table.sorted_log.prepare(view.reader.env.cpu)
        del ref
        return view

    def _newest_view(self) -> "SuperVersion":
        view = self._view
        if view is None:
            assert self._view_provider is not None
            view = self._view_provider.newest_view()
        view.pin.check()
        return view

    def _up_to_limit(self, rows: Rows) -> Rows:
        if self._remaining is None:
            return rows
        taken = min(self._remaining, len(rows))
        self._remaining -= taken
        if taken == len(rows):
            return rows
        self._restart()  # the source has passed rows that a later seek may need
        return rows.slice(len(rows) - taken, len(rows)) if self.reverse else rows.slice(0, taken)

    async def _read(self) -> Rows | None:
        room_bytes = self._room_after_turn()
        while True:
            if room_bytes:
                await self._take_room(self._newest_view(), room_bytes)
            try:
                return await self._read_source()
            except SstMissing as gone:
                room_bytes = 0
                await self._switch_view(gone)
            except ScanRoomExceeded as exceeded:
                room_bytes = exceeded.size_bytes  # the wait comes after: the error keeps the sources alive

    async def _read_source(self) -> Rows | None:
        ref = self._ref
        if ref is None or ref.source is None:
            ref = await self._open_source()
        assert ref.source is not None
        ref.pin.check()
        rows = await ref.source.next()
        self._has_used_turn = True
        return rows

    async def _open_source(self) -> PinRef:
        """Open the sources to merge."""
        view = await self._current_view()
        self._ref = ref = view.pin.acquire()
        scanned_values = view.reader.cache.budget.scanned_values
        room = None if scanned_values is None else ScanRoom(scanned_values.held_bytes)
        plan = self._plan._replace(key_range=self._rest(), max_seq=self._max_seq, room=room)
        ref.view, ref.source = view, visible_source(view, plan)
        return ref

    async def _take_room(self, view: "SuperVersion", size_bytes: int) -> None:
        """Wait for memory for large values, without any: two scans that each kept some might wait for each other."""
        self._restart()
        budget = view.reader.cache.budget
        if budget.large_values is not None:
            budget.large_values.release()
        self._scanned_values = budget.scanned_values
        assert self._scanned_values is not None, "it bounds the scan"
        await self._scanned_values.take(size_bytes)
        self._turn_ends_s, self._has_used_turn = view.reader.env.clock.monotonic_s() + TURN_S, False

    def _room_after_turn(self) -> int:
        """Return the memory for large values to take again, after others that wait for it; 0: the scan goes on."""
        values = self._scanned_values
        if values is None or not (self._has_used_turn and values.is_contended):
            return 0
        is_over = self._newest_view().reader.env.clock.monotonic_s() >= self._turn_ends_s
        return values.held_bytes if is_over else 0

    def _restart(self) -> None:
        """Open the sources again before the next read."""
        if self._ref is not None:
            self._ref.restart()

    async def _switch_view(self, gone: SstMissing) -> None:
        """Go on in a newer super version: a compaction replaced an SST of this one, and GC deleted it."""
        view_provider, self._ref = self._view_provider, None
        if view_provider is None or (self._held is None and self._has_begun):
            # A newer state may lack rows that were visible when the scan began.
            assert self._view is not None, "a scan without a held sequence number stays with one view"
            self._view.reader.sections.count_missing()
            raise gone
        await view_provider.on_sst_missing(gone)
        if self._held is None:
            self._view = view_provider.newest_view()

    def _rest(self) -> KeyRange:
        """Return the range without what was read."""
        return self._range if self._last_key is None else self._beyond(excluded(self._last_key))

    def _beyond(self, bound: Bound) -> KeyRange:
        """Return the rest of the range after a bound."""
        return self._range.intersect(KeyRange(UNBOUNDED, bound) if self.reverse else KeyRange(bound, UNBOUNDED))


def _reads_now(view: "SuperVersion") -> bool:
    """Whether some reads of a state do not wait, and there is a cache for metadata."""
    return view.pin.is_usable and view.reader.reads_now and view.reader.cache.capacity_bytes > 0
