"""What a reader sees, from the greatest key down.

Sources give chunks that follow each other downwards, each by ascending key inside.  The greatest first key of the
chunks at hand is a border: whatever has not been read yet lies at or below it.  So all that is above the border is
merged as forward reads merge it, which keeps one implementation of what is visible, and the next chunk is read of the
source whose chunk ends there.
"""

from collections.abc import Sequence

from shale.env import Env
from shale.iter.merge_operator import MergeOperator
from shale.iter.source import ChunksSource, RowSource, drain
from shale.iter.visible import VisibleSource
from shale.kernels.rows import Rows
from shale.sst.row_search import lower_bound
from shale.store.gather import gather

_ROWS_FIRST = 512
"""Of rows that are in memory so many are merged at first, since a scan may want no more."""
_ROWS_MAX = 32 << 10
_GROWTH = 4


class BackwardRows:
    """Rows that are in memory, from the end on in chunks that grow."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._end = len(rows)
        self._count = _ROWS_FIRST

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        if not self._end:
            return None
        end, self._end = self._end, max(0, self._end - self._count)
        self._count = min(_GROWTH * self._count, _ROWS_MAX)
        return self._rows.slice(self._end, end)


class BackwardVisible:
    """One row per visible key; chunks descend, and each ascends inside.

    Args:
        sources: in order of precedence, each giving descending chunks.
        max_seq, operator, now_tick: see ``VisibleSource``.
        env: where merging runs.

    Raises:
        MergeOperatorMissing: from ``next``, when it meets an operand and there is no operator.
    """

    def __init__(
        self,
        sources: Sequence[RowSource],
        max_seq: int | None,
        env: Env,
        *,
        operator: MergeOperator | None = None,
        now_tick: int | None = None,
    ) -> None:
        self._inputs = [_Input(source) for source in sources]
        self._max_seq = max_seq
        self._env = env
        self._operator = operator
        self._now_tick = now_tick
        self._merged: list[Rows] = []

    async def next(self) -> Rows | None:
        """The next chunk, never empty; ``None`` at the end."""
        while not self._merged:
            parts = await self._rows_above_border()
            if parts is None:
                return None
            visible = VisibleSource(
                [ChunksSource(part) for part in parts],
                self._max_seq,
                self._env,
                operator=self._operator,
                now_tick=self._now_tick,
            )
            self._merged = await drain(visible)
        return self._merged.pop()

    async def _rows_above_border(self) -> list[list[Rows]] | None:
        """Every row of the greatest keys, by source; ``None`` at the end."""
        while True:
            await gather([source.fetch for source in self._inputs if not source.chunks and not source.is_finished])
            unfinished = [source for source in self._inputs if not source.is_finished]
            border = max((source.first_key for source in unfinished), default=None)
            parts = [part for source in self._inputs if (part := source.take_above(border))]
            if parts or border is None:
                return parts or None
            await gather([source.fetch for source in unfinished if source.first_key == border])


class _Input:
    """A source and what was read of it, by ascending key."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self.chunks: list[Rows] = []
        self.is_finished = False

    @property
    def first_key(self) -> bytes:
        """The smallest key that was read and not taken yet; there must be one."""
        return self.chunks[0].key(0)

    async def fetch(self) -> None:
        """Read the next chunk, which lies before the others."""
        rows = await self._source.next()
        if rows is None:
            self.is_finished = True
        else:
            self.chunks.insert(0, rows)

    def take_above(self, border: bytes | None) -> list[Rows]:
        """Take the rows above a key (``None``: all).  Versions of the key itself may not all have been read."""
        if border is None:
            taken, self.chunks = self.chunks, []
            return taken
        taken = []
        while self.chunks:
            rows = self.chunks.pop()
            start = 0 if rows.key(0) > border else lower_bound(rows, border + b"\0")
            if start < len(rows):
                taken.append(rows.slice(start, len(rows)))
            if start:
                self.chunks.append(rows.slice(0, start))
                break
        return taken[::-1]
