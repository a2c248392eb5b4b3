"""Hands the rows of a compaction to a filter and carries out what it decides (docs/protocol.md 6.11)."""

from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeVar

import numpy as np

from shale.compaction.filters import BoolMask, CompactionFilter, Decisions, FilterContext, Mask, NamedFilter, RowBatch
from shale.env import Env
from shale.errors import CompactionFilterFailed
from shale.iter.row_edit import rows_where, with_tombstones, with_values
from shale.iter.source import RowSource
from shale.iter.user_code import RAISED, describe_error, is_value
from shale.kernels.rows import EMPTY_ROWS, I64, Rows
from shale.telemetry.shown_key import format_key
from shale.types import FLAG_MERGE, FLAG_TOMBSTONE, Entry

T = TypeVar("T")


class FilterSource:
    """What a filter leaves of the rows of a source.

    It sees, per key, the newest row and, as long as these are merge operands, older ones: what readers without a
    snapshot see.  Tombstones, and versions that only snapshots see, pass unseen.

    Args:
        source: merged rows after retention.
        filter_: makes the filter, and names it in errors.
        context: for the filter.
        env: where the filter runs.
        after: the row behind which ``source`` begins, if it goes on where another attempt stopped.
    """

    def __init__(
        self, source: RowSource, filter_: NamedFilter, context: FilterContext, env: Env, *, after: Entry | None = None
    ) -> None:
        self._source = source
        self._named = filter_
        self._context = context
        self._env = env
        self._filter: CompactionFilter | None = None
        self._last_key = after.key if after is not None else None
        self._is_settled = after is not None and not after.is_merge
        """Whether the current version of the last key has passed."""
        self._is_finished = False

    async def next(self) -> Rows | None:
        """See ``RowSource``.

        Raises:
            CompactionFilterFailed: the filter raised, or decided something impossible.
        """
        if self._filter is None:
            self._filter = await self._env.cpu.run(partial(self._call, EMPTY_ROWS, self._make))
        while (rows := await self._source.next()) is not None:
            kept = await self._env.cpu.run(partial(self._filtered, self._filter, rows))
            if len(kept):
                return kept
        if not self._is_finished:
            self._is_finished = True
            await self._env.cpu.run(partial(self._call, EMPTY_ROWS, self._filter.finish))
        return None

    def _make(self) -> CompactionFilter:
        made = self._named.make(self._context)
        if not all(callable(getattr(made, method, None)) for method in ("filter", "finish")):
            self._refuse(EMPTY_ROWS, "is not a shale.CompactionFilter: it makes objects without filter() or finish()")
        return made

    def _filtered(self, filter_: CompactionFilter, rows: Rows) -> Rows:
        places = np.flatnonzero(self._current(rows))
        if not len(places):
            return rows
        shown = np.zeros(len(rows), np.bool_)
        shown[places] = True
        batch = RowBatch(rows_where(rows, shown), self._context)
        decisions = self._call(rows, lambda: filter_.filter(batch))
        if decisions is None:
            return rows
        if not isinstance(decisions, Decisions):
            self._refuse(rows, f"answered with {type(decisions).__name__}, not with shale.Decisions or None")
        return self._call(rows, partial(self._carried_out, rows, places, decisions))

    def _carried_out(self, rows: Rows, places: I64, decisions: Decisions) -> Rows:
        """Replace values, turn rows into tombstones, leave rows out; ``places`` are those of the batch."""
        deleted = self._mask(rows, places, decisions.delete, "delete")
        dropped = self._mask(rows, places, decisions.drop, "drop")
        values = {}
        for index, value in decisions.values.items():
            if not 0 <= index < len(places):
                self._refuse(rows, f"gave a value for row {index} of {len(places)}")
            if not is_value(value):
                self._refuse(rows, f"gave row {index} a value that is not bytes of a possible length")
            values[int(places[index])] = bytes(value)
        if (deleted & dropped).any() or any(deleted[place] or dropped[place] for place in values):
            self._refuse(rows, "decided twice about a row")
        return rows_where(with_tombstones(with_values(rows, values), deleted), ~dropped)

    def _mask(self, rows: Rows, places: I64, given: Mask | None, what: str) -> BoolMask:
        mask = np.zeros(len(rows), np.bool_)
        if given is not None:
            decided = np.asarray(given)
            if decided.dtype != np.bool_ or decided.shape != places.shape:
                self._refuse(rows, f"decided {what} with something else than {len(places)} booleans")
            mask[places] = decided
        return mask

    def _refuse(self, rows: Rows, why: str) -> NoReturn:
        raise CompactionFilterFailed(f"{self._place(rows)} {why}")

    def _current(self, rows: Rows) -> BoolMask:
        """Which rows make up the current version of their key; remembers how the last key stands."""
        continues = same_as_previous(rows, self._last_key)
        settles = (rows.flags & np.uint8(FLAG_MERGE)) == 0
        passed = np.cumsum(settles) - settles  # values and tombstones before each row, whatever their key
        starts = np.flatnonzero(~continues)
        group = np.cumsum(~continues)  # 0: still the last key of the chunk before
        before_group = np.concatenate([[-1 if self._is_settled else 0], passed[starts]])
        settled = passed > before_group[group]
        self._last_key = rows.key(len(rows) - 1)
        self._is_settled = bool(settled[-1] or settles[-1])
        shown: BoolMask = ~settled & ((rows.flags & np.uint8(FLAG_TOMBSTONE)) == 0)
        return shown

    def _call(self, rows: Rows, work: Callable[[], T]) -> T:
        try:
            return work()
        except CompactionFilterFailed:
            raise
        except RAISED as error:  # whatever code of the user's raises, it fails the job and not the worker
            raise CompactionFilterFailed(f"{self._place(rows)} raised {describe_error(error)}") from error

    def _place(self, rows: Rows) -> str:
        segment = format_key(self._context.segment) if self._context.segment else "root"
        batch = f", in the batch from key {format_key(rows.key(0))}," if len(rows) else ""
        return f"compaction filter {self._named.name!r}, segment {segment}{batch}"


def same_as_previous(rows: Rows, previous: bytes | None) -> BoolMask:
    """Which rows have the key of the row before them; ``previous`` is the key before the first one."""
    count = len(rows)
    same = np.zeros(count, np.bool_)
    same[0] = previous is not None and rows.key(0) == previous
    sizes = np.diff(rows.key_offsets)
    if (sizes == sizes[0]).all():
        keys = rows.key_bytes[rows.key_offsets[0] : rows.key_offsets[-1]].reshape(count, -1)
        same[1:] = (keys[1:] == keys[:-1]).all(axis=1)
        return same
    for place in (np.flatnonzero(sizes[1:] == sizes[:-1]) + 1).tolist():
        same[place] = rows.key(place) == rows.key(place - 1)
    return same
