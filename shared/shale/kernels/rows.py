"""Rows as columns: how rows travel in bulk from the block decoder to the block encoder."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shale.core.lazy_dataclass import dataclass
from shale.types import Entry

U8: TypeAlias = NDArray[np.uint8]
I64: TypeAlias = NDArray[np.int64]
U64: TypeAlias = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """``n`` rows in columns; row ``i`` has the key ``key_bytes[key_offsets[i]:key_offsets[i+1]]``, values alike.

    ``key_offsets`` and ``val_offsets`` have shape (n+1,), ascend and begin anywhere in their buffer, so a slice of
    rows shares the buffers.  ``seq``, ``flags``, ``create_ts`` and ``expire_ts`` have shape (n,).  A timestamp is
    meaningful only if its flag is set and 0 otherwise; tombstones have empty values.  The arrays are not modified.
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
        """Return the rows ``[start, end)``, which share every buffer."""
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
        """Return the key of one row."""
        return self.key_bytes[self.key_offsets[index] : self.key_offsets[index + 1]].tobytes()

    def value(self, index: int) -> bytes:
        """Return the value of one row."""
        return self.val_bytes[self.val_offsets[index] : self.val_offsets[index + 1]].tobytes()

    @property
    def size_bytes(self) -> int:
        """Bytes of all keys and values."""
        keys, values = self.key_offsets, self.val_offsets
        return int(keys[-1] - keys[0] + values[-1] - values[0])


def only_keys(rows: Rows) -> Rows:
    """Return the same rows with empty values; all other columns are shared."""
    if not len(rows.val_bytes):
        return rows
    return replace(rows, val_bytes=EMPTY_ROWS.val_bytes, val_offsets=np.zeros(len(rows) + 1, np.int64))


def _no_rows() -> Rows:
    empty = np.zeros(0, np.uint8)
    return Rows(
        key_bytes=empty,
        key_offsets=np.zeros(1, np.int64),
        val_bytes=empty,
        val_offsets=np.zeros(1, np.int64),
        seq=np.zeros(0, np.uint64),
        flags=empty,
        create_ts=np.zeros(0, np.int64),
        expire_ts=np.zeros(0, np.int64),
    )


EMPTY_ROWS = _no_rows()


def rows_from_entries(entries: Sequence[Entry]) -> Rows:
    """Turn entries into columns, in the order given."""
    if not entries:
        return EMPTY_ROWS
    keys, values, seqs, flags, create_ts, expire_ts = zip(*entries, strict=True)
    return Rows(
        key_bytes=np.frombuffer(b"".join(keys), np.uint8),
        key_offsets=_offsets_of(keys),
        val_bytes=np.frombuffer(b"".join(values), np.uint8),
        val_offsets=_offsets_of(values),
        seq=np.array(seqs, np.uint64),
        flags=np.array(flags, np.uint8),
        create_ts=np.array(create_ts, np.int64),
        expire_ts=np.array(expire_ts, np.int64),
    )


def entries_from_rows(rows: Rows) -> list[Entry]:
    """Turn columns into entries: one Python object per row, so for callers and small inputs only."""
    keys = _pieces(rows.key_bytes, rows.key_offsets)
    values = _pieces(rows.val_bytes, rows.val_offsets)
    numbers = (rows.seq.tolist(), rows.flags.tolist(), rows.create_ts.tolist(), rows.expire_ts.tolist())
    return list(map(Entry._make, zip(keys, values, *numbers, strict=True)))


def concat_rows(parts: Sequence[Rows]) -> Rows:
    """Concatenate the rows of all parts; a single part is returned unchanged."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return EMPTY_ROWS
    if len(parts) == 1:
        return parts[0]
    key_bytes, key_offsets = _concat_pieces([(part.key_bytes, part.key_offsets) for part in parts])
    val_bytes, val_offsets = _concat_pieces([(part.val_bytes, part.val_offsets) for part in parts])
    return Rows(
        key_bytes=key_bytes,
        key_offsets=key_offsets,
        val_bytes=val_bytes,
        val_offsets=val_offsets,
        seq=np.concatenate([part.seq for part in parts]),
        flags=np.concatenate([part.flags for part in parts]),
        create_ts=np.concatenate([part.create_ts for part in parts]),
        expire_ts=np.concatenate([part.expire_ts for part in parts]),
    )


def _offsets_of(pieces: Sequence[bytes]) -> I64:
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)), out=offsets[1:])
    return offsets


def _pieces(data: U8, offsets: I64) -> list[bytes]:
    first = int(offsets[0])
    blob = data[first : offsets[-1]].tobytes()
    bounds = (offsets - first).tolist()
    return [blob[start:end] for start, end in pairwise(bounds)]


def _concat_pieces(parts: Sequence[tuple[U8, I64]]) -> tuple[U8, I64]:
    data = np.concatenate([data[offsets[0] : offsets[-1]] for data, offsets in parts])
    all_offsets = [np.zeros(1, np.int64)]
    size = 0
    for _, offsets in parts:
        all_offsets.append(offsets[1:] - (offsets[0] - size))
        size += int(offsets[-1] - offsets[0])
    return data, np.concatenate(all_offsets)
