"""What the numbers mean that ``SCAN`` gives to its clients.

A cursor stands for the last key that was looked at; the next call goes on behind it, so whatever is written meanwhile,
a key that is there all the time comes exactly once.  The newest cursors are remembered, so many and of so many bytes
of keys; a forgotten one is an error, and never another place.
"""

import random  # noqa: TID251 - only the type; the generator is injected
from collections import OrderedDict

CURSORS_MAX = 16_384
KEY_BYTES_MAX = 16 << 20


class Cursors:
    """The cursors of one server: clients may come back on another connection."""

    def __init__(self, rng: random.Random, *, count_max: int = CURSORS_MAX, key_bytes_max: int = KEY_BYTES_MAX) -> None:
        self._rng = rng
        self._count_max = count_max
        self._key_bytes_max = key_bytes_max
        self._keys: OrderedDict[int, bytes] = OrderedDict()
        self._key_bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: bytes) -> int:
        """A cursor behind ``key``: a number of at most 63 bits that an earlier server has hardly given."""
        cursor = self._rng.getrandbits(63) | 1
        while cursor in self._keys:
            cursor = self._rng.getrandbits(63) | 1
        self._keys[cursor] = key
        self._key_bytes += len(key)
        while len(self._keys) > self._count_max or self._key_bytes > self._key_bytes_max:
            self._key_bytes -= len(self._keys.popitem(last=False)[1])
        return cursor

    def find(self, cursor: int) -> bytes | None:
        """The key behind which to go on; ``None`` if the cursor is unknown.  It may be asked for again."""
        if cursor not in self._keys:
            return None
        self._keys.move_to_end(cursor)
        return self._keys[cursor]
