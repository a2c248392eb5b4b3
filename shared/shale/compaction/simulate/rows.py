"""Rows as a simulation sees them: columns of key numbers, expiry and deletion; each stands for many real rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NEVER = np.inf


@dataclass(frozen=True, slots=True)
class RowSet:
    """One SST or run: at most one row per key.

    Args:
        keys: shape (n,), i64, any order.
        expires_s: shape (n,), f64, seconds since the start; ``NEVER`` without a lifetime.
        deleted: shape (n,), bool: a tombstone.
    """

    keys: NDArray[np.int64]
    expires_s: NDArray[np.float64]
    deleted: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Rows, tombstones included."""
        return len(self.keys)

    @property
    def tombstone_count(self) -> int:
        """Rows that are tombstones."""
        return int(np.count_nonzero(self.deleted))


EMPTY = RowSet(np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.bool_))


def newest_of_each_key(rows: RowSet) -> RowSet:
    """What a memtable leaves of rows in the order of their writing."""
    return merged([_part(rows, slice(None, None, -1))], tick_s=-NEVER, drop_tombstones=False)


def merged(sources: Sequence[RowSet], *, tick_s: float, drop_tombstones: bool) -> RowSet:
    """Merge sources, the newest first, as docs/protocol.md 7.2 does without snapshots."""
    if not sources:
        return EMPTY
    every = RowSet(
        np.concatenate([rows.keys for rows in sources]),
        np.concatenate([rows.expires_s for rows in sources]),
        np.concatenate([rows.deleted for rows in sources]),
    )
    newest = _part(every, np.unique(every.keys, return_index=True)[1])
    deleted = newest.deleted | (newest.expires_s <= tick_s)
    kept = RowSet(newest.keys, np.where(deleted, NEVER, newest.expires_s), deleted)
    return _part(kept, ~deleted) if drop_tombstones else kept


def _part(rows: RowSet, chosen: "slice | NDArray[np.int64] | NDArray[np.bool_]") -> RowSet:
    return RowSet(rows.keys[chosen], rows.expires_s[chosen], rows.deleted[chosen])
