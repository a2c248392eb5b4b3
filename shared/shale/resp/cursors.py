"""Cursors of ``SCAN``.

A cursor maps to the last key that was read, and the next call continues after it.  So a key that exists during the
whole iteration is returned exactly once, whatever else is written.  The latest cursors are kept, up to a number and a
total size of keys; an evicted cursor is an error and never another position.
"""

import random  # noqa: TID251 - only the type; the generator is injected
from collections import OrderedDict

CURSORS_MAX = 16_384
KEY_BYTES_MAX = 16 << 20


class Cursors:
    """The cursors of one server, shared by its connections."""

    def __init__(self, rng: random.Random, *, count_max: int = CURSORS_MAX, key_bytes_max: int = KEY_BYTES_MAX) -> None:
        self._rng = rng
        self._count_max = count_max
        self._key_bytes_max = key_bytes_max
        self._keys: OrderedDict[int, bytes] = OrderedDict()
        self._key_bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: bytes) -> int:
        """Return a new cursor for the position after ``key``: 63 random bits, which another process will not repeat."""
        cursor = self._rng.getrandbits(63) | 1
        while cursor in self._keys:
            cursor = self._rng.getrandbits(63) | 1
        self._keys[cursor] = key
        self._key_bytes += len(key)
        while len(self._keys) > self._count_max or self._key_bytes > self._key_bytes_max:
            self._key_bytes -= len(self._keys.popitem(last=False)[1])
        return cursor

    def find(self, cursor: int) -> bytes | None:
        """Return the key after which to continue; ``None`` if the cursor is unknown.  The cursor stays valid."""
        if cursor not in self._keys:
            return None
        self._keys.move_to_end(cursor)
        return self._keys[cursor]
