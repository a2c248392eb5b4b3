"""How a scan reads on: chunk by chunk, of one state, whatever is flushed, compacted and collected meanwhile."""

from dataclasses import replace
from typing import TYPE_CHECKING

from shale.engine.memtable import Memtable
from shale.engine.progress import raise_again
from shale.engine.scan_sources import ScanPlan, prepare_kernels, visible_source
from shale.errors import InvalidRequestError, ShaleError, SstMissing
from shale.kernels.rows import Rows
from shale.types import UNBOUNDED, Bound, KeyRange, excluded, included

if TYPE_CHECKING:
    from shale.engine.pin import Use
    from shale.engine.read_point import Claim, ReadPoint
    from shale.engine.read_view import ReadView

_ROWS_AFTER_SEEK = 64
"""Who seeks once probably wants a few rows, and then to seek again."""
_INTERRUPTED = "the scan was interrupted and cannot go on: begin another one behind the last row"


class ScanChunks:
    """The rows of a plan in columns, as ``VisibleSource`` gives them, up to its limit.

    It holds its sequence number, and goes on in the newest view when an SST of its own is gone, or when its memtables
    were flushed and are too much to keep.
    """

    __slots__ = (
        "_broken",
        "_has_begun",
        "_held",
        "_is_over",
        "_keeper",
        "_left",
        "_max_seq",
        "_plan",
        "_rest",
        "_settle",
        "_use",
        "_view",
        "backward",
        "key_range",
    )

    def __init__(self, point: "ReadPoint", plan: ScanPlan) -> None:
        """Make no request.

        Args:
            point: what to read.
            plan: what of it; ``rows_wanted`` is the limit.
        """
        self.key_range = plan.key_range
        self.backward = plan.backward
        self._settle = point.settle
        self._keeper = point.keeper
        self._max_seq = point.max_seq
        self._held: Claim | None = None
        if point.keeper is not None and point.max_seq is not None:
            self._held = point.keeper.hold(point.max_seq)
        self._view: ReadView | None = point.view if self._held is None else None
        """Where it reads; who holds a sequence number reads wherever is newest, and keeps no old state in memory."""
        self._use: Use | None = None
        self._plan = plan
        self._left = plan.rows_wanted
        self._rest = plan.key_range
        """Where the rows behind the chunk are that was given last."""
        self._has_begun = False
        self._broken: ShaleError | None = None
        self._is_over = False

    @property
    def read_range(self) -> KeyRange:
        """See ``Scan.read_range``."""
        whole = self.key_range
        if self._left != 0 or not self._has_begun:
            return whole
        if self.backward:
            assert self._rest.end.key is not None
            return KeyRange(included(self._rest.end.key), whole.end)
        assert self._rest.start.key is not None
        return KeyRange(whole.start, included(self._rest.start.key))

    def take_whole(self) -> None:
        """All rows will be taken: nobody waits for the first ones."""
        if not self._has_begun:
            self._plan = replace(self._plan, is_whole=True)

    def check(self) -> None:
        """Raise why no more can be read, if so."""
        if self._broken is not None:
            raise_again(self._broken)

    async def next(self) -> Rows | None:
        """The next rows, which ascend in both directions; ``None`` at the end."""
        self.check()
        if self._left == 0:
            self.close()
        if self._is_over:
            return None
        try:
            rows = await self._read()
        except BaseException as error:
            self.close()
            self._broken = error if isinstance(error, ShaleError) else InvalidRequestError(_INTERRUPTED)
            raise
        if rows is None:
            self.close()
            return None
        rows = self._up_to_limit(rows)
        self._rest = self._beyond(excluded(rows.key(0) if self.backward else rows.key(len(rows) - 1)))
        self._has_begun = True
        return rows

    def give_back(self, count: int) -> None:
        """Rows that were read and that nobody wants are none of those the limit counts."""
        if self._left is not None:
            self._left += count

    def go_on_at(self, key: bytes) -> None:
        """Leave out what lies before a key, in the direction of reading."""
        if self._is_over:
            return
        self._rest = self._beyond(included(key))
        self._begin_again()
        wanted = self._plan.rows_wanted
        self._plan = replace(self._plan, rows_wanted=min(wanted or _ROWS_AFTER_SEEK, _ROWS_AFTER_SEEK))

    def close(self) -> None:
        """Let go of the view, so that its owner may release what protects it; there are no more rows."""
        self._is_over = True
        self._view = self._keeper = self._settle = self._use = None
        if self._held is not None:
            self._held.close()
            self._held = None

    def _up_to_limit(self, rows: Rows) -> Rows:
        if self._left is None:
            return rows
        taken = min(self._left, len(rows))
        self._left -= taken
        if taken == len(rows):
            return rows
        self._begin_again()  # the source has passed rows that a seek may yet ask for
        return rows.slice(len(rows) - taken, len(rows)) if self.backward else rows.slice(0, taken)

    async def _read(self) -> Rows | None:
        while True:
            use = self._use
            if use is None or use.source is None:
                use = await self._begin()
            assert use.source is not None
            use.pin.check()
            try:
                return await use.source.next()
            except SstMissing as gone:
                await self._go_on_elsewhere(gone)

    async def _begin(self) -> "Use":
        """Choose what to merge."""
        if self._settle is not None:
            self._follow(await self._settle())
        view = self._view
        if view is None:
            assert self._keeper is not None
            view = self._keeper.newest()
        self._use = use = view.pin.use()
        use.view = view
        for table in view.tables:
            if isinstance(table, Memtable) and table.sorted_log.has_long_tail:
                await table.sorted_log.prepare(view.reader.env.cpu)
        plan = replace(self._plan, key_range=self._rest, max_seq=self._max_seq)
        await prepare_kernels(view, plan)
        use.view, use.source = view, visible_source(view, plan)
        return use

    def _follow(self, point: "ReadPoint") -> None:
        """Read there from now on."""
        self._view, self._max_seq, self._keeper, self._settle = point.view, point.max_seq, point.keeper, point.settle

    def _begin_again(self) -> None:
        """Choose anew what to merge before more is read."""
        if self._use is not None:
            self._use.begin_again()

    async def _go_on_elsewhere(self, gone: SstMissing) -> None:
        """Go on in a newer view: an SST of this one was collected, because a compaction has replaced it."""
        keeper, self._use = self._keeper, None
        if keeper is None or (self._held is None and self._has_begun):
            # Nothing newer may be read in its place, or what was visible when the scan began may not be there any more.
            assert self._view is not None, "who holds no sequence number stays with one view"
            self._view.reader.count_loss()
            raise gone
        await keeper.renew(gone)
        if self._held is None:
            self._view = keeper.newest()

    def _beyond(self, bound: Bound) -> KeyRange:
        """What is left of the range when everything up to a bound was passed."""
        return self._rest.intersect(KeyRange(UNBOUNDED, bound) if self.backward else KeyRange(bound, UNBOUNDED))
