"""A set of SST ids with 16 bytes for each: a million ids take 16 MB."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge

_LOW = 2**64 - 1


class UlidSet:
    """Two sorted columns: the upper and the lower 64 bits of each id."""

    __slots__ = ("_high", "_low")

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._high = array("Q")
        self._low = array("Q")
        self.update(ids)

    def update(self, ids: Iterable[int]) -> None:
        """Add ids.  Only new ids cost work, because versions of one database share most of their SSTs."""
        fresh = sorted({each for each in ids if each not in self})
        if not fresh:
            return
        high, low = array("Q"), array("Q")
        for each in merge(self, fresh):
            high.append(each >> 64)
            low.append(each & _LOW)
        self._high, self._low = high, low

    def __contains__(self, wanted: object) -> bool:
        if not isinstance(wanted, int):
            return False
        high, low = wanted >> 64, wanted & _LOW
        place = bisect_left(self._high, high)
        while place < len(self._high) and self._high[place] == high:
            if self._low[place] == low:
                return True
            place += 1
        return False

    def __iter__(self) -> Iterator[int]:
        return (high << 64 | low for high, low in zip(self._high, self._low, strict=True))

    def __len__(self) -> int:
        return len(self._high)
