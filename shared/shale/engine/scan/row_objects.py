"""Rows of columns as Python objects, for callers who want them one by one."""

from collections.abc import Iterator
from itertools import pairwise, repeat

import numpy as np

from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled, use_kernels
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
    if not use_kernels():
        return rows_to_items_plain(rows)
    count = len(rows)
    columns = (_bytes(rows.key_bytes), _numbers(rows.key_offsets), _bytes(rows.val_bytes), _numbers(rows.val_offsets))
    items: list[tuple[bytes, bytes]] = [_NO_ITEM] * count
    _check_count(compiled.put_pairs(id(items), count, *_addresses(*columns)), count)
    return items


def rows_to_items_plain(rows: Rows) -> list[tuple[bytes, bytes]]:
    """The same without kernels."""
    keys = byte_strings_plain(rows.key_bytes, rows.key_offsets)
    return list(zip(keys, byte_strings_plain(rows.val_bytes, rows.val_offsets), strict=True))


def byte_strings(data: U8, offsets: I64) -> list[bytes]:
    """The strings between offsets."""
    if not use_kernels():
        return byte_strings_plain(data, offsets)
    count = len(offsets) - 1
    columns = _bytes(data), _numbers(offsets)
    strings = [b""] * count
    _check_count(compiled.put_strings(id(strings), count, *_addresses(*columns)), count)
    return strings


def byte_strings_plain(data: U8, offsets: I64) -> list[bytes]:
    """The same without kernels.  Where all have one length numpy cuts them, several times as fast."""
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


_NO_ITEM = (b"", b"")


def _bytes(data: U8) -> U8:
    """Bytes as a kernel reads them: side by side, which they nearly always are."""
    return np.ascontiguousarray(data, np.uint8)


def _numbers(offsets: I64) -> I64:
    return np.ascontiguousarray(offsets, np.int64)


def _addresses(*columns: U8 | I64) -> list[int]:
    return [address_of(column) for column in columns]


def _check_count(done: int, count: int) -> None:
    if done < count:
        raise MemoryError(f"no memory for {count} rows as objects")


def _stamps(rows: Rows, stamps: I64, flag: int) -> Iterator[int | None]:
    """A column of timestamps with ``None`` where the flag is not set."""
    present = rows.flags & np.uint8(flag) != 0
    if present.all():
        return iter(stamps.tolist())
    if not present.any():
        return repeat(None)
    return iter([stamp if has else None for stamp, has in zip(stamps.tolist(), present.tolist(), strict=True)])
