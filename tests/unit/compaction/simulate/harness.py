"""Row sets as lists of keys, expiry times and tombstone flags."""

import numpy as np

from shale.compaction.simulate.rows import RowSet


def rows(*each: tuple[int, float, bool]) -> RowSet:
    """Return rows in the given order: key, expiry in seconds, whether it is a tombstone."""
    keys, expires_s, deleted = zip(*each, strict=True) if each else ((), (), ())
    return RowSet(np.array(keys, np.int64), np.array(expires_s, np.float64), np.array(deleted, np.bool_))


def shown(found: RowSet) -> list[tuple[int, float, bool]]:
    """Return what ``rows`` takes."""
    return list(zip(found.keys.tolist(), found.expires_s.tolist(), found.deleted.tolist(), strict=True))
