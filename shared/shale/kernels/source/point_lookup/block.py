"""Kernel: find the newest visible row of a key in one decoded block (docs/reference/format.md 7)."""

from typing import Any

import numpy as np

from shale.kernels.layout.point_lookup import (
    CORRUPT,
    OUT_CREATE_TS,
    OUT_EXPIRE_TS,
    OUT_FLAGS,
    OUT_SEQ,
    OUT_VALUE,
    OUT_VALUE_LEN,
)
from shale.kernels.source.block.encode import shared_len
from shale.kernels.source.block.row_head import read_row_head
from shale.kernels.source.jit import helper
from shale.kernels.source.memory import LINE_BYTES, load_u8, load_u16be, load_u32be, load_u64be, prefetch, store_i64

NOT_IN_BLOCK = 0
"""The block ends before the key, or inside its versions."""
IN_BLOCK = 1
PAST_BLOCK = 2
"""The block continues after the key, so no later block has it."""
assert CORRUPT not in (NOT_IN_BLOCK, IN_BLOCK, PAST_BLOCK)

_AHEAD_BYTES = 8 * LINE_BYTES
"""How far a scan of rows prefetches: each row tells where the next one is, so it would wait for every line."""

_LESS = -1
_EQUAL = 0
_GREATER = 1


@helper
def _compare(suffix: int, suffix_len: int, key: int, key_len: int, shared: int) -> Any:
    """Compare a row's key, which shares ``shared`` bytes with the key; return the order and the common length."""
    common = shared_len(suffix, key + shared, min(suffix_len, key_len - shared))
    matched = shared + common
    if common == suffix_len:
        return (_EQUAL if matched == key_len else _LESS), matched
    if matched == key_len:
        return _GREATER, matched
    return (_LESS if load_u8(suffix + common) < load_u8(key + matched) else _GREATER), matched


@helper
def _answer(image: int, end: int, tail: int, value: int, value_len: int, version: int, seq: int, out: int) -> int:
    """Write the row whose sequence number is at ``tail`` to the output."""
    flags = load_u8(tail + 8)
    at = tail + 9
    expires = np.int64(0)
    created = np.int64(0)
    if flags > 15 or (flags & 9) == 9 or at + 8 * ((flags >> 1 & 1) + (flags >> 2 & 1)) > end:
        return CORRUPT
    if flags & 2:
        expires = np.int64(load_u64be(at))
        at += 8
    if flags & 4:
        created = np.int64(load_u64be(at))
        at += 8
    if flags & 1:
        value_len = 0
        if version == 1:
            flags &= 13
            expires = np.int64(0)
    elif version == 1:
        if at + 4 > end:
            return CORRUPT
        value_len = load_u32be(at)
        value = at + 4
        if value + value_len > end:
            return CORRUPT
    store_i64(out + 8 * OUT_VALUE, value - image)
    store_i64(out + 8 * OUT_VALUE_LEN, value_len)
    store_i64(out + 8 * OUT_SEQ, seq)
    store_i64(out + 8 * OUT_FLAGS, flags)
    store_i64(out + 8 * OUT_CREATE_TS, created)
    store_i64(out + 8 * OUT_EXPIRE_TS, expires)
    return IN_BLOCK


@helper
def restart_before(image: int, end: int, count: int, key: int, key_len: int) -> int:
    """Return the address of the last row at a restart that is below the key, or of the first row; 0: malformed."""
    low, high = 0, count
    while low < high:  # the last restart below the key: versions of the key may begin before an equal one
        middle = (low + high) // 2
        prefetch(image + load_u16be(end + 2 * ((low + middle) // 2)))
        prefetch(image + load_u16be(end + 2 * ((middle + 1 + high) // 2)))
        at = image + load_u16be(end + 2 * middle)
        if at >= end:
            return 0
        shared, suffix, _, head = read_row_head(at, end)
        if shared != 0:
            return 0
        order, _ = _compare(head, suffix, key, key_len, 0)
        if order < 0:
            low = middle + 1
        else:
            high = middle
    at = image + load_u16be(end + 2 * max(low - 1, 0))
    for ahead in range(LINE_BYTES, _AHEAD_BYTES, LINE_BYTES):
        prefetch(at + ahead)
    return at


@helper
def _find_v2(image: int, end: int, at: int, key: int, key_len: int, max_seq: Any, out: int) -> int:
    matched = 0
    previous_len = 0
    equal = False
    while at < end:
        prefetch(at + _AHEAD_BYTES)
        prefetch(at + _AHEAD_BYTES + LINE_BYTES)
        shared, suffix, value_len, head = read_row_head(at, end)
        if shared < 0 or shared > previous_len:
            return CORRUPT
        previous_len = shared + suffix
        tail = head + suffix + value_len
        if shared <= matched:
            order, matched = _compare(head, suffix, key, key_len, shared)
            if order > 0:
                return PAST_BLOCK
            equal = order == 0
        else:
            equal = False  # shares more with the row before than that row with the key, so it is still below
        if equal:
            seq = load_u64be(tail)
            if seq <= max_seq:
                if seq >> np.uint64(63):
                    return CORRUPT
                return _answer(image, end, tail, head + suffix, value_len, 2, np.int64(seq), out)
        flags = load_u8(tail + 8)
        at = tail + 9 + 8 * ((flags >> 1 & 1) + (flags >> 2 & 1))
    return NOT_IN_BLOCK


@helper
def _find_v1(image: int, end: int, count: int, key: int, key_len: int, max_seq: Any, out: int) -> int:
    if image + 4 > end or load_u16be(image) != 0:
        return CORRUPT
    first_len = load_u16be(image + 2)
    if image + 4 + first_len + 9 > end:
        return CORRUPT
    first_order, first_matched = _compare(image + 4, first_len, key, key_len, 0)
    low, high = 0, count
    while low < high:  # the first row at or above the key
        middle = (low + high) // 2
        at = image + load_u16be(end + 2 * middle)
        if at + 4 > end:
            return CORRUPT
        shared, suffix = load_u16be(at), load_u16be(at + 2)
        if shared > first_len or at + 4 + suffix + 9 > end:
            return CORRUPT
        order = first_order
        if shared <= first_matched:
            order, _ = _compare(at + 4, suffix, key, key_len, shared)
        if order < 0:
            low = middle + 1
        else:
            high = middle
    while low < count:
        at = image + load_u16be(end + 2 * low)
        if at + 4 > end:
            return CORRUPT
        shared, suffix = load_u16be(at), load_u16be(at + 2)
        tail = at + 4 + suffix
        if shared > first_len or tail + 9 > end:
            return CORRUPT
        order = first_order
        if shared <= first_matched:
            order, _ = _compare(at + 4, suffix, key, key_len, shared)
        if order != 0:
            return PAST_BLOCK
        seq = load_u64be(tail)
        if seq <= max_seq:
            if seq >> np.uint64(63):
                return CORRUPT
            return _answer(image, end, tail, 0, 0, 1, np.int64(seq), out)
        low += 1
    return NOT_IN_BLOCK


@helper
def _rows_end(image: int, size: int) -> Any:
    """Return where the rows of a block end, and the number of offsets; 0 if it is malformed."""
    if size < 2:
        return image, 0
    count = load_u16be(image + size - 2)
    end = image + size - 2 - 2 * count
    return end, (count if end > image else 0)


@helper
def begin_in_block(image: int, size: int, version: int, key: int, key_len: int) -> int:
    """Return the address of a row from which ``find_from`` may search for a key; 0: the block is malformed."""
    end, count = _rows_end(image, size)
    if count == 0:
        return 0
    return restart_before(image, end, count, key, key_len) if version == 2 else image


@helper
def find_from(at: int, image: int, size: int, version: int, key: int, key_len: int, max_seq: Any, out: int) -> int:
    """``find_in_block`` from the row on that ``begin_in_block`` has found."""
    end, count = _rows_end(image, size)
    if at == 0 or count == 0:
        return CORRUPT
    if version == 2:
        return _find_v2(image, end, at, key, key_len, max_seq, out)
    return _find_v1(image, end, count, key, key_len, max_seq, out)


@helper
def find_in_block(image: int, size: int, version: int, key: int, key_len: int, max_seq: Any, out: int) -> int:
    """Find the newest row of a key at or below ``max_seq``.

    Args:
        image: address of the decoded block, without its checksum.
        size: its bytes.
        version: 1 or 2.
        key: address of the key.
        key_len: its bytes.
        max_seq: newer rows are invisible.
        out: address of the record to fill (``layout.point_lookup``).

    Returns:
        ``IN_BLOCK``, ``NOT_IN_BLOCK``, ``PAST_BLOCK`` or ``CORRUPT``, also for a seq beyond 63 bits.
    """
    at = begin_in_block(image, size, version, key, key_len)
    return find_from(at, image, size, version, key, key_len, max_seq, out)
