"""Compaction filters: what a program decides about rows while a compaction rewrites them (docs/protocol.md 6.11).

A filter is a class of the user's.  One object of it is made for each key range of a job and sees the rows that the
range would write, in batches and in order, in one thread at a time::

    class ForgetSessions(shale.CompactionFilter):
        def filter(self, batch):
            return shale.Decisions(delete=[key.startswith(b"session:") for key in batch.keys])

Rows come after merge operands were folded, expired rows removed, and superseded versions dropped.  Not shown are
tombstones, and versions below the current one, which only snapshots still read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shale.kernels.rows import I64, U8, U64, Rows
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, KeyRange, RunId, Seq, Ulid

BoolMask: TypeAlias = NDArray[np.bool_]
Mask: TypeAlias = Sequence[bool] | BoolMask


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterContext:
    """The job that a filter works for.

    Args:
        job_id: the compaction's id.
        segment: prefix of the tree that is compacted; empty: the root tree.
        destination: id of the run that is written.
        is_dest_last_run: nothing older than this run exists in the tree.
        clock_tick: milliseconds on the database's clock, by which expiry is decided.
        retention_min_seq: the oldest snapshot known when the job began sees rows up to here.
        key_range: the part of the job that this filter sees.
    """

    job_id: Ulid
    segment: bytes
    destination: RunId
    is_dest_last_run: bool
    clock_tick: int
    retention_min_seq: Seq
    key_range: KeyRange


class RowBatch:
    """Rows in key order, as columns of equal length.  Keys and values are made into ``bytes`` only if asked for.

    The arrays are shared with the compaction and cannot be written to.
    """

    def __init__(self, rows: Rows, context: FilterContext) -> None:
        self.rows = Rows(**{each.name: _locked(getattr(rows, each.name)) for each in fields(rows)})
        self.context = context

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def keys(self) -> list[bytes]:
        """The keys."""
        return _pieces(self.rows.key_bytes, self.rows.key_offsets)

    @cached_property
    def values(self) -> list[bytes]:
        """The values; of a merge operand, the operand."""
        return _pieces(self.rows.val_bytes, self.rows.val_offsets)

    @property
    def seq(self) -> U64:
        """Sequence numbers."""
        return self.rows.seq

    @property
    def key_sizes(self) -> I64:
        """Bytes of each key."""
        return np.diff(self.rows.key_offsets)

    @property
    def value_sizes(self) -> I64:
        """Bytes of each value."""
        return np.diff(self.rows.val_offsets)

    @property
    def create_ts(self) -> I64:
        """When rows were written, in milliseconds since 1970; 0 where ``has_create_ts`` says no."""
        return self.rows.create_ts

    @property
    def expire_ts(self) -> I64:
        """When rows expire, in milliseconds since 1970; 0 where ``has_expire_ts`` says no."""
        return self.rows.expire_ts

    @property
    def has_create_ts(self) -> BoolMask:
        """Which rows know when they were written."""
        return self._have(FLAG_CREATE_TS)

    @property
    def has_expire_ts(self) -> BoolMask:
        """Which rows expire."""
        return self._have(FLAG_EXPIRE_TS)

    @property
    def is_operand(self) -> BoolMask:
        """Which rows are merge operands rather than values."""
        return self._have(FLAG_MERGE)

    def _have(self, flag: int) -> BoolMask:
        mask: BoolMask = (self.rows.flags & np.uint8(flag)) != 0
        return mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decisions:
    """What becomes of the rows of a batch; those that nothing is said about stay.

    Args:
        delete: the key is gone, whatever older rows of it exist elsewhere.
        drop: the row vanishes without a trace, so an older row of the key may show again.  Right for merge
            operands, of which the others shall count; hardly ever for values.
        values: new values by place in the batch.  Kind, sequence number and times of a row stay as they are.
    """

    delete: Mask | None = None
    drop: Mask | None = None
    values: Mapping[int, bytes] = field(default_factory=dict)


class CompactionFilter(Protocol):
    """Decides about rows.  Anything it raises fails the job, which is tried again later; no row is lost."""

    def __init__(self, context: FilterContext) -> None:
        """Begin a key range; a resumed one begins behind what is already written."""

    def filter(self, batch: RowBatch) -> Decisions | None:
        """Decide about a batch; ``None``: all rows stay.  Nothing else runs in this object meanwhile."""
        ...

    def finish(self) -> None:
        """Every row of the range was seen."""


FilterFactory: TypeAlias = Callable[[FilterContext], CompactionFilter]


@dataclass(frozen=True, slots=True)
class NamedFilter:
    """A filter as settings and errors call it, and what makes one."""

    name: str
    make: FilterFactory


def _pieces(data: U8, offsets: I64) -> list[bytes]:
    whole = data.data
    return [bytes(whole[start:end]) for start, end in pairwise(offsets.tolist())]


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
