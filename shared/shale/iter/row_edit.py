"""New columns with some rows dropped or changed."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from shale.compaction.filters import BoolMask
from shale.kernels.rows import I64, U8, Rows
from shale.types import FLAG_CREATE_TS, FLAG_TOMBSTONE


def rows_where(rows: Rows, kept: BoolMask) -> Rows:
    """Return the rows that a mask of shape (n,) selects."""
    if kept.all():
        return rows
    return Rows(
        key_bytes=_selected(rows.key_bytes, rows.key_offsets, kept),
        key_offsets=_offsets_of(np.diff(rows.key_offsets)[kept]),
        val_bytes=_selected(rows.val_bytes, rows.val_offsets, kept),
        val_offsets=_offsets_of(np.diff(rows.val_offsets)[kept]),
        seq=rows.seq[kept],
        flags=rows.flags[kept],
        create_ts=rows.create_ts[kept],
        expire_ts=rows.expire_ts[kept],
    )


def with_values(rows: Rows, values: Mapping[int, bytes]) -> Rows:
    """Return the rows with other values at some places."""
    if not values:
        return rows
    places = sorted(values)
    sizes = np.diff(rows.val_offsets)
    sizes[places] = [len(values[place]) for place in places]
    data = rows.val_bytes.data
    offsets = rows.val_offsets
    pieces: list[bytes | memoryview] = []
    for before, place in pairwise([-1, *places, len(rows)]):
        pieces.append(data[offsets[before + 1] : offsets[place]])
        if place < len(rows):
            pieces.append(values[place])
    return Rows(
        key_bytes=rows.key_bytes,
        key_offsets=rows.key_offsets,
        val_bytes=np.frombuffer(b"".join(pieces), np.uint8),
        val_offsets=_offsets_of(sizes),
        seq=rows.seq,
        flags=rows.flags,
        create_ts=rows.create_ts,
        expire_ts=rows.expire_ts,
    )


def with_tombstones(rows: Rows, deleted: BoolMask) -> Rows:
    """Return the rows with some turned into tombstones, which keep seq and create_ts and never expire."""
    if not deleted.any():
        return rows
    sizes = np.diff(rows.val_offsets)
    sizes[deleted] = 0
    as_tombstones = rows.flags & np.uint8(FLAG_CREATE_TS) | np.uint8(FLAG_TOMBSTONE)
    return Rows(
        key_bytes=rows.key_bytes,
        key_offsets=rows.key_offsets,
        val_bytes=_selected(rows.val_bytes, rows.val_offsets, ~deleted),
        val_offsets=_offsets_of(sizes),
        seq=rows.seq,
        flags=np.where(deleted, as_tombstones, rows.flags),
        create_ts=rows.create_ts,
        expire_ts=np.where(deleted, 0, rows.expire_ts),
    )


def _selected(data: U8, offsets: I64, kept: BoolMask) -> U8:
    view = data.data
    bounds = offsets.tolist()
    edges = np.flatnonzero(np.diff(kept.astype(np.int8), prepend=0, append=0)).tolist()
    pieces = [view[bounds[start] : bounds[end]] for start, end in zip(edges[::2], edges[1::2], strict=True)]
    return np.frombuffer(b"".join(pieces), np.uint8)


def _offsets_of(sizes: I64) -> I64:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
