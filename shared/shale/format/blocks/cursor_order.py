"""The order of the cursors that a merge reads: the one with the next row first."""

from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled
from shale.kernels.rows import I64

_LIVE = 0
"""The word of every merge's state that counts the sources in the order."""


class CursorOrder:
    """Keeps ``order``, shape (sources,), sorted while sources begin, go on and end.

    Args:
        cursors: address of the cursors; a source that is added or goes on has a row.
        order: the sources by their next row; the kernels of merges change it too.
        state: the state of the merge.
    """

    def __init__(self, cursors: int, order: I64, state: I64) -> None:
        self._cursors = cursors
        self._order = order
        self._state = state
        self._order_address = address_of(order)

    def add(self, source: int) -> None:
        """Add a source."""
        live = int(self._state[_LIVE])
        self._order[1 : live + 1] = self._order[:live].copy()
        self._order[0] = source
        self._state[_LIVE] = live + 1
        compiled.insert_cursor(self._cursors, self._order_address, live + 1)

    def sort_first(self) -> None:
        """Move the first source, which has a new row, to its place."""
        compiled.insert_cursor(self._cursors, self._order_address, int(self._state[_LIVE]))

    def remove_first(self) -> None:
        """Remove the first source, which has ended."""
        live = int(self._state[_LIVE])
        self._order[: live - 1] = self._order[1:live].copy()
        self._state[_LIVE] = live - 1
