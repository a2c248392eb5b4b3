"""Visible rows from the greatest key down.

Sources return chunks in descending order; rows ascend inside a chunk.  The greatest first key of the chunks read so
far is a border: unread rows lie at or below it.  The rows above the border are merged as in a forward scan, so the
rules of visibility exist once.  Then the source whose chunk begins at the border reads its next chunk.
"""

from collections.abc import Sequence

from shale.concurrency.gather import gather
from shale.env import Env
from shale.iter.merge_operator import MergeOperator
from shale.iter.source import ChunksSource, RowSource, drain
from shale.iter.visible import VisibleSource
from shale.kernels.rows import Rows
from shale.sst.row_search import lower_bound

_ROWS_FIRST = 512
"""Rows of the first chunk from memory: a scan may need no more."""
_ROWS_MAX = 32 << 10
_GROWTH = 4


class ReverseRowsSource:
    """Rows in memory as descending chunks that grow."""

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


class ReverseVisibleSource:
    """One row per visible key, in descending chunks whose rows ascend.

    Args:
        sources: in order of precedence; their chunks descend.
        max_seq, operator, now_tick: see ``VisibleSource``.
        env: where merging runs.

    Raises:
        MergeOperatorMissing: from ``next``, if a row is an operand and there is no operator.
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
        self._inputs = [_ReverseInput(source) for source in sources]
        self._max_seq = max_seq
        self._env = env
        self._operator = operator
        self._now_tick = now_tick
        self._merged: list[Rows] = []

    async def next(self) -> Rows | None:
        """Return the next chunk, never empty; ``None`` at the end."""
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
        """Return the rows above the border, by source; ``None`` at the end."""
        while True:
            await gather([source.fetch for source in self._inputs if not source.chunks and not source.is_finished])
            unfinished = [source for source in self._inputs if not source.is_finished]
            border = max((source.first_key for source in unfinished), default=None)
            parts = [part for source in self._inputs if (part := source.take_above(border))]
            if parts or border is None:
                return parts or None
            await gather([source.fetch for source in unfinished if source.first_key == border])


class _ReverseInput:
    """A source and its chunks read so far, by ascending key."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self.chunks: list[Rows] = []
        self.is_finished = False

    @property
    def first_key(self) -> bytes:
        """The smallest key read and not taken; there is one."""
        return self.chunks[0].key(0)

    async def fetch(self) -> None:
        """Read the next chunk, whose keys are below the others."""
        rows = await self._source.next()
        if rows is None:
            self.is_finished = True
        else:
            self.chunks.insert(0, rows)

    def take_above(self, border: bytes | None) -> list[Rows]:
        """Take the rows above a key (``None``: all); some versions of the key itself may be unread."""
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
