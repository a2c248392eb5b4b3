"""Scans by recency: the rows of a prefix as they are stored, source by source, the newest source first.

Source: SlateDB ``Db::scan_prefix_by_recency``.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from shale.core.async_use import AsyncRows
from shale.core.state_repr import ShowsState
from shale.engine.memtable.memtable import Memtable
from shale.engine.memtable.row_order import merged_parts
from shale.engine.read.read_options import ReadTable
from shale.engine.read.read_point import ReadPoint
from shale.engine.read.super_version import SuperVersion
from shale.engine.scan.plan import ScanPlan
from shale.engine.scan.sources import level_sources
from shale.engine.write.durability import reraise
from shale.errors import InvalidRequestError, ShaleError
from shale.iter.source import RowSource
from shale.kernels.rows import entries_from_rows
from shale.types import Entry

if TYPE_CHECKING:
    from shale.engine.read.pins import PinRef

_ROWS_FIRST = 16
"""Rows that the first read of an SST is for: a caller who asks for what is recent may soon stop."""
_INTERRUPTED = "the scan was interrupted and cannot go on: begin another one"


class RecencyScan(ShowsState, AsyncRows):
    """The stored rows of a prefix, iterated once: of the active memtable, frozen memtables, L0s, then sorted runs.

    Nothing is merged: tombstones and merge operands are rows, and a key occurs once per version and source.  Keys
    ascend inside a source, or descend if the scan is reversed; versions of a key go from new to old.  An SST is not
    opened before all newer sources have ended.

    It shows the state of its begin.  If a compaction replaces an SST of that state, and the garbage collector deletes
    it before it is read, the scan ends with ``SstMissing``.
    """

    __slots__ = ("_carried", "_entries", "_error", "_plan", "_point", "_ref", "_sources", "_tables")

    def __init__(self, point: ReadPoint, plan: ScanPlan) -> None:
        """Make no request.

        Args:
            point: the state to read.
            plan: the range of one prefix, and how to read it.

        Raises:
            InvalidRequestError: keys of the prefix are in several segments.
        """
        if point.view_provider is not None and point.max_seq is not None:
            point = point._replace(view=point.view_provider.newest_view())  # with the writes of a transaction
        _require_one_tree(point.view, plan)
        self._point = point
        self._plan = plan
        self._ref: PinRef | None = None
        self._tables: Iterator[ReadTable] = iter(())
        self._sources: Iterator[RowSource] | None = None
        self._entries: Iterator[Entry] = iter(())
        self._carried: tuple[RowSource, list[Entry]] | None = None
        """The source that is being read, and rows of it that wait for newer versions of their key."""
        self._error: ShaleError | None = None

    def _shown_state(self) -> Mapping[str, object]:
        return {"prefix": self._plan.prefix, "reverse": self._plan.reverse}

    def __aiter__(self) -> "RecencyScan":
        return self

    async def __anext__(self) -> Entry:
        for entry in self._entries:
            return entry
        if self._error is not None:
            reraise(self._error)
        try:
            self._entries = iter(await self._next_entries())
        except BaseException as error:
            self.close()
            self._error = error if isinstance(error, ShaleError) else InvalidRequestError(_INTERRUPTED)
            raise
        for entry in self._entries:
            return entry
        self.close()
        raise StopAsyncIteration

    async def next_batch(self, size: int) -> list[Entry]:
        """Return the next ``size`` rows, fewer at the end, then none."""
        batch: list[Entry] = []
        while len(batch) < size and (entry := await anext(self, None)) is not None:
            batch.append(entry)
        return batch

    def close(self) -> None:
        """Release the state; there are no more rows."""
        self._sources, self._tables, self._entries = iter(()), iter(()), iter(())
        self._ref = self._carried = None

    async def _next_entries(self) -> list[Entry]:
        """Return the next rows; none at the end."""
        sources = self._sources if self._sources is not None else await self._open()
        if self._ref is not None:
            self._ref.pin.check()
        for table in self._tables:
            if entries := await self._table_entries(table):
                return entries
        while True:
            if self._carried is None:
                source = next(sources, None)
                if source is None:
                    return []
                self._carried = source, []
            if entries := await self._read_on(*self._carried):
                return entries

    async def _open(self) -> Iterator[RowSource]:
        if self._point.resolve is not None:
            self._point = await self._point.resolve()
            _require_one_tree(self._point.view, self._plan)
        view = self._point.view
        self._ref = view.pin.acquire()
        self._tables = iter(view.tables)
        self._sources = _sources(view, self._plan._replace(max_seq=self._point.max_seq, expected_rows=_ROWS_FIRST))
        return self._sources

    async def _table_entries(self, table: ReadTable) -> list[Entry]:
        view = self._point.view
        if isinstance(table, Memtable) and table.sorted_log.has_long_tail:
            await table.sorted_log.prepare(view.reader.env.cpu)
        parts = [rows for part in table.sorted_parts() if len(rows := part.slice(self._plan.key_range))]
        entries = entries_from_rows(merged_parts(parts) if len(parts) > 1 else parts[0]) if parts else []
        if table is not view.own:
            entries = self._up_to_max_seq(entries)
        return _by_descending_key(entries) if self._plan.reverse else entries

    async def _read_on(self, source: RowSource, carried: list[Entry]) -> list[Entry]:
        """Return the next rows of an SST or a run.

        In reverse, chunks come from the last to the first, so the next one may begin with newer versions of the
        first key of this one; rows of that key are carried over.
        """
        rows = await source.next()
        if rows is None:
            self._carried = None
            return carried
        entries = self._up_to_max_seq(entries_from_rows(rows))
        if not self._plan.reverse:
            self._carried = source, []
            return entries
        entries += carried
        end = next((place for place, entry in enumerate(entries) if entry.key != entries[0].key), len(entries))
        self._carried = source, entries[:end]
        return _by_descending_key(entries[end:])

    def _up_to_max_seq(self, entries: list[Entry]) -> list[Entry]:
        max_seq = self._point.max_seq
        return entries if max_seq is None else [entry for entry in entries if entry.seq <= max_seq]


def _sources(view: SuperVersion, plan: ScanPlan) -> Iterator[RowSource]:
    """Yield L0s and runs, newest first; a source makes no request before it is read."""
    for _, part, tree in view.trees.in_range(plan.key_range):
        yield from level_sources(view, plan, part, tree)


def _require_one_tree(view: SuperVersion, plan: ScanPlan) -> None:
    trees = [prefix for prefix, _, _ in view.trees.in_range(plan.key_range)]
    if len(trees) > 1:
        raise InvalidRequestError(
            f"the prefix {plan.prefix!r} has keys in {len(trees)} segments, whose rows have no order by recency: scan "
            "one segment, or use scan"
        )


def _by_descending_key(entries: list[Entry]) -> list[Entry]:
    """Return ascending rows by descending key; versions of a key stay in order."""
    groups = [list(group) for _, group in groupby(entries, key=attrgetter("key"))]
    return [entry for group in reversed(groups) for entry in group]
