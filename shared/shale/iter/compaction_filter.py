"""Shows the rows of a compaction to a filter and applies its decisions (docs/reference/protocol.md 6.11)."""

from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeVar

import numpy as np

from shale.compaction.filters import (
    BoolMask,
    CompactionFilter,
    Decisions,
    FilterContext,
    Mask,
    NamedCompactionFilter,
    RowBatch,
)
from shale.env import Env
from shale.errors import CompactionFilterFailed
from shale.iter.row_edit import rows_where, with_tombstones, with_values
from shale.iter.source import RowSource
from shale.iter.user_code import USER_CODE_ERRORS, describe_error, is_value
from shale.kernels.rows import EMPTY_ROWS, I64, Rows
from shale.telemetry.key_format import format_key
from shale.types import FLAG_MERGE, FLAG_TOMBSTONE, Entry

T = TypeVar("T")


class CompactionFilterSource:
    """The rows of a source after a compaction filter.

    The filter sees what readers without a snapshot see: per key the newest row, and older rows below merge operands.
    Tombstones and versions that only snapshots see pass unfiltered.

    Args:
        source: merged rows after retention.
        filter_: creates the filter, and names it in errors.
        context: passed to the filter.
        env: where the filter runs.
        after: the last row before ``source``, if it resumes an earlier attempt.
    """

    def __init__(
        self,
        source: RowSource,
        filter_: NamedCompactionFilter,
        context: FilterContext,
        env: Env,
        *,
        after: Entry | None = None,
    ) -> None:
        self._source = source
        self._named = filter_
        self._context = context
        self._env = env
        self._filter: CompactionFilter | None = None
        self._last_key = after.key if after is not None else None
        self._is_settled = after is not None and not after.is_merge
        """Whether the newest value of the last key has passed."""
        self._is_finished = False

    async def next(self) -> Rows | None:
        """See ``RowSource``.

        Raises:
            CompactionFilterFailed: the filter raised, or its decisions are impossible.
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
            self._refuse(EMPTY_ROWS, "is not a shale.CompactionFilter: its objects lack filter() or finish()")
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
            self._refuse(rows, f"returned {type(decisions).__name__}, not shale.Decisions or None")
        return self._call(rows, partial(self._apply_decisions, rows, places, decisions))

    def _apply_decisions(self, rows: Rows, places: I64, decisions: Decisions) -> Rows:
        """Replace values, turn rows into tombstones, drop rows; ``places`` are the batch's rows in ``rows``."""
        deleted = self._mask(rows, places, decisions.delete, "delete")
        dropped = self._mask(rows, places, decisions.drop, "drop")
        values = {}
        for index, value in decisions.values.items():
            if not 0 <= index < len(places):
                self._refuse(rows, f"returned a value for row {index} of {len(places)}")
            if not is_value(value):
                self._refuse(rows, f"returned a value for row {index} that is not bytes of at most 4 GiB")
            values[int(places[index])] = bytes(value)
        if (deleted & dropped).any() or any(deleted[place] or dropped[place] for place in values):
            self._refuse(rows, "returned two decisions for one row")
        return rows_where(with_tombstones(with_values(rows, values), deleted), ~dropped)

    def _mask(self, rows: Rows, places: I64, given: Mask | None, what: str) -> BoolMask:
        mask = np.zeros(len(rows), np.bool_)
        if given is not None:
            decided = np.asarray(given)
            if decided.dtype != np.bool_ or decided.shape != places.shape:
                self._refuse(rows, f"returned {what} that is not {len(places)} booleans")
            mask[places] = decided
        return mask

    def _refuse(self, rows: Rows, why: str) -> NoReturn:
        raise CompactionFilterFailed(f"{self._place(rows)} {why}")

    def _current(self, rows: Rows) -> BoolMask:
        """Return which rows readers without a snapshot see; keep the state of the last key."""
        continues = same_as_previous(rows, self._last_key)
        settles = (rows.flags & np.uint8(FLAG_MERGE)) == 0
        passed = np.cumsum(settles) - settles  # values and tombstones before each row, of any key
        starts = np.flatnonzero(~continues)
        group = np.cumsum(~continues)  # 0: the last key of the chunk before
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
        except USER_CODE_ERRORS as error:  # any error of user code fails the job, not the worker
            raise CompactionFilterFailed(f"{self._place(rows)} raised {describe_error(error)}") from error

    def _place(self, rows: Rows) -> str:
        segment = format_key(self._context.segment) if self._context.segment else "root"
        batch = f", in the batch from key {format_key(rows.key(0))}," if len(rows) else ""
        return f"compaction filter {self._named.name!r}, segment {segment}{batch}"


def same_as_previous(rows: Rows, previous: bytes | None) -> BoolMask:
    """Return which rows repeat the key of the row before; ``previous`` is the key before the first row."""
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
