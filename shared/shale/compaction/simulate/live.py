"""Which keys a reader would see, whatever lies in which SST."""

import numpy as np

from shale.compaction.simulate.rows import RowSet


class LiveKeys:
    """The newest row of every key."""

    def __init__(self) -> None:
        self._until_s = np.full(1024, -np.inf)

    def apply(self, rows: RowSet) -> None:
        """Rows that are newer than all before."""
        if not rows.count:
            return
        needed = int(rows.keys.max()) + 1
        if needed > len(self._until_s):
            grown = np.full(max(needed, 2 * len(self._until_s)), -np.inf)
            grown[: len(self._until_s)] = self._until_s
            self._until_s = grown
        self._until_s[rows.keys] = np.where(rows.deleted, -np.inf, rows.expires_s)

    def count(self, now_s: float) -> int:
        """Keys that exist and have not expired."""
        return int(np.count_nonzero(self._until_s > now_s))
