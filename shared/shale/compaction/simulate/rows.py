"""Simulated rows: columns of key numbers, expiry times and tombstone flags; each represents many real rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shale.core.lazy_dataclass import dataclass

NEVER = np.inf


@dataclass(frozen=True, slots=True)
class RowSet:
    """The rows of one SST or run: at most one per key.

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
        """Number of rows, tombstones included."""
        return len(self.keys)

    @property
    def tombstone_count(self) -> int:
        """Number of tombstones."""
        return int(np.count_nonzero(self.deleted))


EMPTY = RowSet(np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.bool_))


def newest_of_each_key(rows: RowSet) -> RowSet:
    """Return the newest row of each key; ``rows`` are in write order."""
    return merged([_part(rows, slice(None, None, -1))], tick_s=-NEVER, drop_tombstones=False)


def merged(sources: Sequence[RowSet], *, tick_s: float, drop_tombstones: bool) -> RowSet:
    """Merge sources, newest first, as in docs/reference/protocol.md 7.2 without snapshots."""
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


class LiveKeys:
    """The newest row of each key."""

    def __init__(self) -> None:
        self._until_s = np.full(1024, -np.inf)

    def apply(self, rows: RowSet) -> None:
        """Apply rows that are newer than all before."""
        if not rows.count:
            return
        needed = int(rows.keys.max()) + 1
        if needed > len(self._until_s):
            grown = np.full(max(needed, 2 * len(self._until_s)), -np.inf)
            grown[: len(self._until_s)] = self._until_s
            self._until_s = grown
        self._until_s[rows.keys] = np.where(rows.deleted, -np.inf, rows.expires_s)

    def count(self, now_s: float) -> int:
        """Count the keys that exist and have not expired."""
        return int(np.count_nonzero(self._until_s > now_s))
