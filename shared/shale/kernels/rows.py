"""Rows as columns: how rows travel in bulk from the block decoder to the block encoder."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

U8: TypeAlias = NDArray[np.uint8]
I64: TypeAlias = NDArray[np.int64]
U64: TypeAlias = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """``n`` rows in columns; row ``i`` has the key ``key_bytes[key_offsets[i]:key_offsets[i+1]]``, values alike.

    ``key_offsets`` and ``val_offsets`` have shape (n+1,), ascend and begin anywhere in their buffer, so a slice of
    rows shares the buffers.  ``seq``, ``flags``, ``create_ts`` and ``expire_ts`` have shape (n,).  A timestamp is
    meaningful only if its flag is set and 0 otherwise; tombstones have empty values.  Nobody writes into the arrays.
    """

    key_bytes: U8
    key_offsets: I64
    val_bytes: U8
    val_offsets: I64
    seq: U64
    flags: U8
    create_ts: I64
    expire_ts: I64

    def __len__(self) -> int:
        return len(self.seq)

    def slice(self, start: int, end: int) -> "Rows":
        """Rows ``[start, end)``, sharing every buffer."""
        return Rows(
            key_bytes=self.key_bytes,
            key_offsets=self.key_offsets[start : end + 1],
            val_bytes=self.val_bytes,
            val_offsets=self.val_offsets[start : end + 1],
            seq=self.seq[start:end],
            flags=self.flags[start:end],
            create_ts=self.create_ts[start:end],
            expire_ts=self.expire_ts[start:end],
        )

    def key(self, index: int) -> bytes:
        """The key of one row."""
        return self.key_bytes[self.key_offsets[index] : self.key_offsets[index + 1]].tobytes()

    def value(self, index: int) -> bytes:
        """The value of one row."""
        return self.val_bytes[self.val_offsets[index] : self.val_offsets[index + 1]].tobytes()

    @property
    def size_bytes(self) -> int:
        """Bytes of all keys and values."""
        keys, values = self.key_offsets, self.val_offsets
        return int(keys[-1] - keys[0] + values[-1] - values[0])
