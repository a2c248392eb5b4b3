"""Compaction filters: user code that decides about rows while a compaction rewrites them (docs/reference/protocol.md
6.11).

A filter is a user-defined class.  Each key range of a job has its own instance, which gets the rows that the range
would write, in batches and in key order, in one thread at a time::

    class ForgetSessions(shale.CompactionFilter):
        def filter(self, batch):
            return shale.Decisions(delete=[key.startswith(b"session:") for key in batch.keys])

Filters run after operands are merged and expired and superseded rows are dropped.  They do not get tombstones or
versions below the current one, which only snapshots read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shale.core.lazy_dataclass import dataclass
from shale.kernels.rows import I64, U8, U64, Rows
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, KeyRange, RunId, Seq, Ulid

BoolMask: TypeAlias = NDArray[np.bool_]
Mask: TypeAlias = Sequence[bool] | BoolMask


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterContext:
    """The job of a filter.

    Args:
        job_id: the compaction's id.
        segment: prefix of the compacted tree; empty: the root tree.
        destination: id of the output run.
        is_dest_last_run: the tree has no older run.
        clock_tick: time that decides about expiry, in milliseconds of the database's clock.
        retention_min_seq: sequence number of the oldest snapshot when the job started.
        key_range: the key range of this instance.
    """

    job_id: Ulid
    segment: bytes
    destination: RunId
    is_dest_last_run: bool
    clock_tick: int
    retention_min_seq: Seq
    key_range: KeyRange


class RowBatch:
    """Rows in key order, as columns of equal length.  Keys and values are converted to ``bytes`` on first access.

    The arrays are shared with the compaction and read-only.
    """

    def __init__(self, rows: Rows, context: FilterContext) -> None:
        self.rows = Rows(**{each.name: _locked(getattr(rows, each.name)) for each in fields(rows)})
        self.context = context

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def keys(self) -> list[bytes]:
        """The keys of the rows."""
        return _pieces(self.rows.key_bytes, self.rows.key_offsets)

    @cached_property
    def values(self) -> list[bytes]:
        """The values of the rows; of a merge operand, the operand."""
        return _pieces(self.rows.val_bytes, self.rows.val_offsets)

    @property
    def seq(self) -> U64:
        """Sequence numbers."""
        return self.rows.seq

    @property
    def key_sizes(self) -> I64:
        """Size of each key in bytes."""
        return np.diff(self.rows.key_offsets)

    @property
    def value_sizes(self) -> I64:
        """Size of each value in bytes."""
        return np.diff(self.rows.val_offsets)

    @property
    def create_ts(self) -> I64:
        """Write times in milliseconds since 1970; 0 where ``has_create_ts`` is false."""
        return self.rows.create_ts

    @property
    def expire_ts(self) -> I64:
        """Expiry times in milliseconds since 1970; 0 where ``has_expire_ts`` is false."""
        return self.rows.expire_ts

    @property
    def has_create_ts(self) -> BoolMask:
        """Which rows have a write time."""
        return self._have(FLAG_CREATE_TS)

    @property
    def has_expire_ts(self) -> BoolMask:
        """Which rows have an expiry time."""
        return self._have(FLAG_EXPIRE_TS)

    @property
    def is_operand(self) -> BoolMask:
        """Which rows are merge operands."""
        return self._have(FLAG_MERGE)

    def _have(self, flag: int) -> BoolMask:
        mask: BoolMask = (self.rows.flags & np.uint8(flag)) != 0
        return mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decisions:
    """The decisions about a batch; all other rows are kept.

    Args:
        delete: rows to replace by tombstones, which also hide older rows of the key.
        drop: rows to remove without a tombstone, so that an older row of the key may become visible.  Suitable for
            merge operands, rarely for values.
        values: new values by index in the batch; kind, sequence number and times of the row do not change.
    """

    delete: Mask | None = None
    drop: Mask | None = None
    values: Mapping[int, bytes] = field(default_factory=dict)


class CompactionFilter(Protocol):
    """Decides about rows.  An exception ends the job as Failed; its sources stay, and no row is lost."""

    def __init__(self, context: FilterContext) -> None:
        """Start a key range; a resumed one starts after the rows that are already written."""

    def filter(self, batch: RowBatch) -> Decisions | None:
        """Decide about a batch; ``None`` keeps all rows.  Calls to one instance never overlap."""
        ...

    def finish(self) -> None:
        """Finish the key range; called after its last batch."""


FilterFactory: TypeAlias = Callable[[FilterContext], CompactionFilter]


@dataclass(frozen=True, slots=True)
class NamedCompactionFilter:
    """A filter's factory and its name in settings and errors."""

    name: str
    make: FilterFactory


def _pieces(data: U8, offsets: I64) -> list[bytes]:
    whole = data.data
    return [bytes(whole[start:end]) for start, end in pairwise(offsets.tolist())]


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
