"""Reads one field of many FlatBuffers tables at once, with the checks of the verifier (docs/reference/format.md 3.1).

An index has a table for each block, tens of thousands of them: walked one by one they would cost a reader a tenth of
a second.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shale.format.flat.verifier import Verifier
from shale.kernels.rows import I64, U8

_U16 = np.dtype("<u2")
_I32 = np.dtype("<i4")
_U32 = np.dtype("<u4")
_PIECE = 4096


class FlatColumns:
    """The tables that the offsets at ``at`` refer to; ``what`` names them in errors."""

    def __init__(self, source: Verifier, at: I64, what: str) -> None:
        self._source = source
        self._what = what
        self._limit = len(source.data)
        self._tables = self._follow(at)
        self._vtables = self._tables - self._read(self._tables, _I32)
        self._check((self._vtables >= 0) & (self._vtables <= self._limit - 4), "has no vtable")
        self._vtable_sizes = self._read(self._vtables, _U16)
        self._sizes = self._read(self._vtables + 2, _U16)
        self._check(
            (self._vtable_sizes >= 4)
            & (self._vtable_sizes % 2 == 0)
            & (self._vtables + self._vtable_sizes <= self._limit)
            & (self._sizes >= 4),
            "has a broken vtable",
        )
        self._check(self._tables + self._sizes <= self._limit, "exceeds the buffer")
        source.spend(int(self._sizes.sum()), 0)

    def __len__(self) -> int:
        return len(self._tables)

    @classmethod
    def of_vector(cls, source: Verifier, start: int, count: int, what: str) -> Self:
        """Return the tables of one vector, which has ``count`` offsets from ``start`` on."""
        return cls(source, start + 4 * np.arange(count, dtype=np.int64), what)

    @property
    def positions(self) -> I64:
        """Where the tables begin."""
        return self._tables

    def tables(self, slot: int, what: str) -> "FlatColumns":
        """Return the tables that a required field of each table refers to."""
        fields = self._fields(slot, 4)
        self._check(fields > 0, f"lacks {what}")
        return FlatColumns(self._source, self._tables + fields, what)

    def has(self, slot: int, width: int) -> NDArray[np.bool_]:
        """Return which tables have a field of this width."""
        return self._fields(slot, width) > 0

    def scalar(self, slot: int, dtype: np.dtype[Any], default: int = 0) -> NDArray[Any]:
        """Return one number per table; ``default`` where it is absent."""
        fields = self._fields(slot, dtype.itemsize)
        present = fields > 0
        values = np.full(len(fields), default, dtype)
        values[present] = self._raw(self._tables[present] + fields[present], dtype)
        return values

    def vectors(self, slot: int, what: str) -> tuple[U8, I64]:
        """Return the bytes of one required vector per table, back to back, and n+1 offsets into them."""
        fields = self._fields(slot, 4)
        self._check(fields > 0, f"lacks {what}")
        return self._gathered(self._tables + fields, what)

    def optional_vectors(self, slot: int, what: str) -> list[bytes | None]:
        """Return the bytes of one vector per table; ``None`` where it is absent."""
        fields = self._fields(slot, 4)
        present = fields > 0
        starts, lengths = self._vectors((self._tables + fields)[present], what)
        data, ends = memoryview(self._source.data), starts + lengths
        found = [bytes(data[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        if len(found) == len(fields):
            return list(found)
        rest = iter(found)
        return [next(rest) if is_there else None for is_there in present.tolist()]

    def _gathered(self, at: I64, what: str) -> tuple[U8, I64]:
        starts, lengths = self._vectors(at, what)
        data: U8 = np.frombuffer(self._source.data, np.uint8)
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        gathered: U8 = np.empty(int(offsets[-1]), np.uint8)
        for first, last in pieces_of(len(lengths)):
            positions = ragged_positions(starts[first:last], lengths[first:last])
            gathered[offsets[first] : offsets[last]] = data[positions]
        return gathered, offsets

    def _vectors(self, at: I64, what: str) -> tuple[I64, I64]:
        """Return where vectors of bytes begin, and their lengths."""
        starts = self._follow(at)
        lengths = self._read(starts, _U32)
        self._check(lengths <= self._limit - 4 - starts, f"has a {what} beyond the buffer")
        self._source.spend(int(lengths.sum()), 0)
        return starts + 4, lengths

    def _fields(self, slot: int, width: int) -> I64:
        """Return the offset of the slot in each table; 0 where it is absent."""
        entry = 4 + 2 * slot
        fields = np.zeros(len(self._tables), np.int64)
        long_enough = self._vtable_sizes >= entry + 2
        fields[long_enough] = self._read(self._vtables[long_enough] + entry, _U16)
        self._check((fields == 0) | (fields >= 4) & (fields + width <= self._sizes), "has a field outside itself")
        return fields

    def _follow(self, at: I64) -> I64:
        distances = self._read(at, _U32)
        targets = at + distances
        self._check((distances >= 4) & (targets <= self._limit - 4), "is out of the buffer")
        return targets

    def _read(self, at: I64, dtype: np.dtype[Any]) -> I64:
        return self._raw(at, dtype).astype(np.int64)

    def _raw(self, at: I64, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return numbers at positions that were checked; an overlapping view reads unaligned ones."""
        everywhere: NDArray[Any] = np.ndarray(
            (max(self._limit - dtype.itemsize + 1, 0),), dtype, self._source.data, strides=(1,)
        )
        return everywhere[at]

    def _check(self, valid: NDArray[np.bool_], fault: str) -> None:
        if not valid.all():
            index = int(np.argmin(valid))
            raise self._source.corrupt(f"entry {index} of {self._what} {fault}", 0)


def offsets_of(starts: I64, counts: I64) -> I64:
    """Return the positions of all offsets in many vectors, one vector after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    positions = np.repeat(starts - 4 * (ends - counts), counts)
    positions += 4 * np.arange(total, dtype=np.int64)
    return positions


def pieces_of(count: int) -> list[tuple[int, int]]:
    """Split entries into runs of a few thousand: the positions of their bytes take eight times the bytes."""
    return [(first, min(first + _PIECE, count)) for first in range(0, count, _PIECE)]


def ragged_positions(starts: I64, lengths: I64) -> I64:
    """Return the positions of all bytes of many ranges, one range after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    shifts = np.repeat(starts - (ends - lengths), lengths)
    shifts += np.arange(total, dtype=np.int64)
    return shifts
