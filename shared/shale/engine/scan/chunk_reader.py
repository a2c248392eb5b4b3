"""Reads a scan chunk by chunk from one state, while flushes, compactions and GC passes go on."""

from dataclasses import replace
from typing import TYPE_CHECKING

from shale.engine.memtable.memtable import Memtable
from shale.engine.read.pins import PinRef
from shale.engine.read.read_point import ReadPoint, SeqHold
from shale.engine.scan.plan import ScanPlan
from shale.engine.scan.sources import visible_source
from shale.engine.write.durability import reraise
from shale.errors import InvalidRequestError, ShaleError, SstMissing
from shale.kernels.rows import Rows
from shale.types import UNBOUNDED, Bound, KeyRange, excluded, included

if TYPE_CHECKING:
    from shale.engine.read.super_version import SuperVersion

_ROWS_AFTER_SEEK = 64
"""A caller that seeks once probably takes a few rows and seeks again."""
_INTERRUPTED = "the scan was interrupted and cannot go on: begin another one after the last row"


class ScanChunkReader:
    """The visible rows of a plan in columns, up to its limit.

    The scan of a writer holds its sequence number.  It goes on in the newest super version when an SST of its own is
    gone, or when its memtables were flushed and take too much memory.
    """

    __slots__ = (
        "_error",
        "_has_begun",
        "_held",
        "_is_over",
        "_max_seq",
        "_plan",
        "_ref",
        "_remaining",
        "_resolve",
        "_rest",
        "_view",
        "_view_provider",
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
        self._rest = plan.key_range
        """The range after the chunk that ``next`` returned last."""
        self._has_begun = False
        self._error: ShaleError | None = None
        self._is_over = False

    @property
    def read_range(self) -> KeyRange:
        """See ``Scan.read_range``."""
        whole = self.key_range
        if self._remaining != 0 or not self._has_begun:
            return whole
        if self.reverse:
            assert self._rest.end.key is not None
            return KeyRange(included(self._rest.end.key), whole.end)
        assert self._rest.start.key is not None
        return KeyRange(whole.start, included(self._rest.start.key))

    def expect_full_read(self) -> None:
        """Read in large chunks: the caller takes all rows and does not wait for the first."""
        if not self._has_begun:
            self._plan = replace(self._plan, reads_all=True)

    def check(self) -> None:
        """Raise the error that ended the scan, if any."""
        if self._error is not None:
            reraise(self._error)

    async def next(self) -> Rows | None:
        """Return the next rows, ascending in both directions; ``None`` at the end."""
        self.check()
        if self._remaining == 0:
            self.close()
        if self._is_over:
            return None
        try:
            rows = await self._read()
        except BaseException as error:
            self.close()
            self._error = error if isinstance(error, ShaleError) else InvalidRequestError(_INTERRUPTED)
            raise
        if rows is None:
            self.close()
            return None
        rows = self._up_to_limit(rows)
        self._rest = self._beyond(excluded(rows.key(0) if self.reverse else rows.key(len(rows) - 1)))
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
        self._rest = self._beyond(included(key))
        self._restart()
        wanted = self._plan.expected_rows
        self._plan = replace(self._plan, expected_rows=min(wanted or _ROWS_AFTER_SEEK, _ROWS_AFTER_SEEK))

    def close(self) -> None:
        """Release the state, so that its owner may release the checkpoint; there are no more rows."""
        self._is_over = True
        self._view = self._view_provider = self._resolve = self._ref = None
        if self._held is not None:
            self._held.close()
            self._held = None

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
        while True:
            ref = self._ref
            if ref is None or ref.source is None:
                ref = await self._open_source()
            assert ref.source is not None
            ref.pin.check()
            try:
                return await ref.source.next()
            except SstMissing as gone:
                await self._switch_view(gone)

    async def _open_source(self) -> PinRef:
        """Open the sources to merge."""
        if self._resolve is not None:
            self._set_point(await self._resolve())
        view = self._view
        if view is None:
            assert self._view_provider is not None
            view = self._view_provider.newest_view()
        self._ref = ref = view.pin.acquire()
        ref.view = view
        for table in view.tables:
            if isinstance(table, Memtable) and table.sorted_log.has_long_tail:
                await table.sorted_log.prepare(view.reader.env.cpu)
        plan = replace(self._plan, key_range=self._rest, max_seq=self._max_seq)
        ref.view, ref.source = view, visible_source(view, plan)
        return ref

    def _set_point(self, point: ReadPoint) -> None:
        """Read at this point from now on."""
        self._view, self._max_seq, self._view_provider, self._resolve = (
            point.view,
            point.max_seq,
            point.view_provider,
            point.resolve,
        )

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
            self._view.reader.count_missing()
            raise gone
        await view_provider.on_sst_missing(gone)
        if self._held is None:
            self._view = view_provider.newest_view()

    def _beyond(self, bound: Bound) -> KeyRange:
        """Return the rest of the range after a bound."""
        return self._rest.intersect(KeyRange(UNBOUNDED, bound) if self.reverse else KeyRange(bound, UNBOUNDED))
