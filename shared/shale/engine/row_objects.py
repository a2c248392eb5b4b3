"""Rows of columns as Python objects, for callers who want them one by one."""

from collections.abc import Iterator
from itertools import pairwise, repeat

import numpy as np

from shale.kernels.rows import I64, U8, Rows
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, Row


def rows_to_list(rows: Rows) -> list[Row]:
    """Rows as objects."""
    if not len(rows):
        return []
    columns = (
        byte_strings(rows.key_bytes, rows.key_offsets),
        byte_strings(rows.val_bytes, rows.val_offsets),
        rows.seq.tolist(),
        _stamps(rows, rows.create_ts, FLAG_CREATE_TS),
        _stamps(rows, rows.expire_ts, FLAG_EXPIRE_TS),
    )
    return list(map(tuple.__new__, repeat(Row), zip(*columns, strict=False)))


def rows_to_items(rows: Rows) -> list[tuple[bytes, bytes]]:
    """Keys and values as objects."""
    if not len(rows):
        return []
    keys, values = byte_strings(rows.key_bytes, rows.key_offsets), byte_strings(rows.val_bytes, rows.val_offsets)
    return list(zip(keys, values, strict=True))


def byte_strings(data: U8, offsets: I64) -> list[bytes]:
    """The strings between offsets.  Where all have one length numpy cuts them, several times as fast."""
    if len(offsets) < 2:
        return []
    first, last = int(offsets[0]), int(offsets[-1])
    lengths = offsets[1:] - offsets[:-1]
    length = int(lengths[0])
    if length and bool((lengths == length).all()):
        strings: list[bytes] = np.ascontiguousarray(data[first:last]).view(f"V{length}").tolist()
        return strings
    blob = data[first:last].tobytes()
    bounds = (offsets - first).tolist()
    return [blob[start:end] for start, end in pairwise(bounds)]


def _stamps(rows: Rows, stamps: I64, flag: int) -> Iterator[int | None]:
    """A column of timestamps with ``None`` where the flag is not set."""
    present = rows.flags & np.uint8(flag) != 0
    if present.all():
        return iter(stamps.tolist())
    if not present.any():
        return repeat(None)
    return iter([stamp if has else None for stamp, has in zip(stamps.tolist(), present.tolist(), strict=True)])
