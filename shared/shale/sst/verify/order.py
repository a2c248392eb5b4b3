"""Checks the order of rows in columns, without an object per row."""

import numpy as np

from shale.kernels.rows import I64, U8, Rows

_WORD = 8


def first_unordered_row(rows: Rows) -> int | None:
    """Return the first row out of order (by key, then newest first); ``None`` if there is none."""
    if len(rows) < 2:
        return None
    order = _compare_adjacent(rows.key_bytes, rows.key_offsets)
    wrong = (order > 0) | ((order == 0) & (rows.seq[:-1] <= rows.seq[1:]))
    return int(np.argmax(wrong)) + 1 if wrong.any() else None


def _compare_adjacent(key_bytes: U8, offsets: I64) -> I64:
    """Compare each key with the next one; shape (n-1,): negative, zero or positive."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    order: I64 = np.sign(lengths[:-1] - lengths[1:])  # right for equal prefixes
    padded = np.concatenate((key_bytes[: int(offsets[-1])], np.zeros(_WORD, np.uint8)))
    shorter = np.minimum(lengths[:-1], lengths[1:])
    undecided = np.arange(len(order))
    at = 0
    while len(undecided):
        undecided = undecided[shorter[undecided] > at]
        size = np.minimum(shorter[undecided] - at, _WORD)
        left = _words(padded, starts[undecided] + at, size)
        right = _words(padded, starts[undecided + 1] + at, size)
        differs = left != right
        order[undecided[differs]] = np.where(left[differs] < right[differs], -1, 1)
        undecided = undecided[~differs]
        at += _WORD
    return order


def _words(data: U8, at: I64, sizes: I64) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """Return up to eight bytes from each place as numbers that compare like the bytes."""
    taken = data[at[:, None] + np.arange(_WORD)]
    taken[np.arange(_WORD) >= sizes[:, None]] = 0
    words: np.ndarray[tuple[int], np.dtype[np.uint64]] = taken.view(">u8")[:, 0].astype(np.uint64)
    return words
