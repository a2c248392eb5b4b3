"""Many small values in columns of 64 bits: a million of them take 24 MiB, and ten times that as objects."""

from array import array
from collections.abc import Callable, Sequence
from typing import TypeVar, overload

import numpy as np

T = TypeVar("T")
Words = tuple[int, int, int]
_WIDTH = 3


class Packed(Sequence[T]):
    """A list whose items are made anew whenever somebody looks at them.

    Args:
        pack: three numbers below 2**64 for an item; the first two tell where it stands in order.
        unpack: the inverse.
    """

    def __init__(self, pack: Callable[[T], Words], unpack: Callable[[int, int, int], T]) -> None:
        self._pack = pack
        self._unpack = unpack
        self._words = array("Q")

    def append(self, item: T) -> None:
        """Add one at the end."""
        self._words.extend(self._pack(item))

    def clear(self) -> None:
        """Forget all."""
        del self._words[:]

    def sort(self) -> None:
        """Bring all in order; stores list them so, and then nothing is copied."""
        words = np.frombuffer(self._words, np.uint64).reshape(-1, _WIDTH)
        first, second = words[:, 0], words[:, 1]
        follows = (first[1:] > first[:-1]) | ((first[1:] == first[:-1]) & (second[1:] >= second[:-1]))
        if not follows.all():
            self._words = array("Q", words[np.lexsort((second, first))].tobytes())

    def __len__(self) -> int:
        return len(self._words) // _WIDTH

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[T, ...]: ...

    def __getitem__(self, place: int | slice) -> T | tuple[T, ...]:
        if isinstance(place, slice):
            return tuple(self[each] for each in range(*place.indices(len(self))))
        at = range(len(self))[place] * _WIDTH
        return self._unpack(self._words[at], self._words[at + 1], self._words[at + 2])
