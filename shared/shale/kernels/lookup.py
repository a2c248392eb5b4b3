"""Kernel: point lookups over the SSTs of one tree, in one call (tables: ``lookup_layout``).

Per SST: ask the filter, search the index for the blocks that can hold the key, search the restarts of a block, walk
its rows.  Every number in a block is checked against the block before it is used.  The plain twin is the read path
without kernels (``ReadView._try_versions``).
"""

from typing import Any

import numpy as np
from numba import types

from shale.kernels.bloom import may_contain
from shale.kernels.compare import compare_bytes
from shale.kernels.jit import helper, kernel
from shale.kernels.lookup_block import IN_BLOCK, PAST_BLOCK, find_in_block
from shale.kernels.lookup_layout import (
    ABSENT,
    CORRUPT,
    FOUND,
    LEVEL_COUNT,
    LEVEL_VIEWS,
    LEVEL_WORDS,
    NEED_BLOCK,
    NEED_META,
    OUT_BLOCK,
    OUT_BLOCKS,
    OUT_FILTER_FALSE_POSITIVES,
    OUT_FILTER_NEGATIVES,
    OUT_FILTER_POSITIVES,
    OUT_FLAGS,
    OUT_IMAGE,
    OUT_LEVEL,
    OUT_SSTS,
    OUT_VALUE,
    OUT_VALUE_LEN,
    OUT_VIEW,
    OUT_WORDS,
    RECORD_INTO,
    RECORD_INTO_SIZE,
    RECORD_LEVELS,
    RECORD_MAX_SEQ,
    RECORD_OUT,
    RECORD_TABLE,
    SLOT_BLOCK_TABLE,
    SLOT_BLOCKS,
    SLOT_BLOOM,
    SLOT_BLOOM_LEN,
    SLOT_BLOOM_PROBES,
    SLOT_INDEX,
    SLOT_INDEX_OFFSETS,
    SLOT_TOUCHED,
    SLOT_VERSION,
    VALUE,
    VALUE_SHIFT,
    VIEW_END,
    VIEW_END_INCLUDED,
    VIEW_END_LEN,
    VIEW_SLOT,
    VIEW_START,
    VIEW_START_EXCLUDED,
    VIEW_START_LEN,
    VIEW_WORDS,
)
from shale.kernels.memory import copy, data_of, load_i64, load_u64, store_i64, store_u8
from shale.kernels.siphash import siphash13
from shale.types import FLAG_MERGE, FLAG_TOMBSTONE

_BYTES = types.Bytes(types.uint8, 1, "C", readonly=True)


@helper
def _begins_by(view: int, key: int, key_len: int) -> Any:
    """Whether the view's range begins at or before the key."""
    size = load_i64(view + 8 * VIEW_START_LEN)
    if size < 0:
        return True
    order = compare_bytes(load_i64(view + 8 * VIEW_START), size, key, key_len)
    return order < 0 or (order == 0 and load_i64(view + 8 * VIEW_START_EXCLUDED) == 0)


@helper
def _ends_before(view: int, key: int, key_len: int) -> Any:
    """Whether the view's range ends before the key."""
    size = load_i64(view + 8 * VIEW_END_LEN)
    if size < 0:
        return False
    order = compare_bytes(load_i64(view + 8 * VIEW_END), size, key, key_len)
    return order < 0 or (order == 0 and load_i64(view + 8 * VIEW_END_INCLUDED) == 0)


@helper
def _count_separators(slot: int, blocks: int, key: int, key_len: int) -> int:
    """How many separators are at or below the key."""
    index = load_i64(slot + 8 * SLOT_INDEX)
    offsets = load_i64(slot + 8 * SLOT_INDEX_OFFSETS)
    low, high = 0, blocks
    while low < high:
        middle = (low + high) // 2
        start = load_i64(offsets + 8 * middle)
        size = load_i64(offsets + 8 * middle + 8) - start
        if compare_bytes(index + start, size, key, key_len) <= 0:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def _is_separator(slot: int, block: int, key: int, key_len: int) -> Any:
    """Whether the separator before a block is the key itself."""
    at = load_i64(slot + 8 * SLOT_INDEX_OFFSETS) + 8 * block
    start = load_i64(at)
    size = load_i64(at + 8) - start
    return size == key_len and compare_bytes(load_i64(slot + 8 * SLOT_INDEX) + start, size, key, key_len) == 0


@helper
def _count(out: int, word: int) -> None:
    store_i64(out + 8 * word, load_i64(out + 8 * word) + 1)


@helper
def _find_in_sst(slot: int, key: int, key_len: int, max_seq: Any, out: int) -> int:
    blocks = load_i64(slot + 8 * SLOT_BLOCKS)
    last = _count_separators(slot, blocks, key, key_len)
    first = last - 1
    while first > 0 and _is_separator(slot, first, key, key_len):  # the key has versions in the block before
        first -= 1
    first = max(first, 0)
    table = load_i64(slot + 8 * SLOT_BLOCK_TABLE)
    touched = load_i64(slot + 8 * SLOT_TOUCHED)
    version = load_i64(slot + 8 * SLOT_VERSION)
    for block in range(first, last):
        store_i64(out + 8 * OUT_BLOCK, block)
        image = load_i64(table + 16 * block) if table != 0 else 0
        if image == 0:
            return NEED_BLOCK
        store_u8(touched + block, 1)
        store_i64(out + 8 * OUT_IMAGE, image)
        _count(out, OUT_BLOCKS)
        status = find_in_block(image, load_i64(table + 16 * block + 8), version, key, key_len, max_seq, out)
        if status == IN_BLOCK:
            return FOUND
        if status == PAST_BLOCK:
            return ABSENT
        if status == CORRUPT:
            return CORRUPT
    return ABSENT


@helper
def _find(key: int, key_len: int, max_seq: Any, level_table: int, n_levels: int, out: int) -> int:
    hash64 = np.uint64(0)
    has_hash = False
    for level in range(n_levels):
        row = level_table + 8 * LEVEL_WORDS * level
        views = load_i64(row + 8 * LEVEL_VIEWS)
        low, high = 0, load_i64(row + 8 * LEVEL_COUNT)
        while low < high:
            middle = (low + high) // 2
            if _begins_by(views + 8 * VIEW_WORDS * middle, key, key_len):
                low = middle + 1
            else:
                high = middle
        stop = low
        while low > 0 and not _ends_before(views + 8 * VIEW_WORDS * (low - 1), key, key_len):
            low -= 1
        for number in range(low, stop):
            store_i64(out + 8 * OUT_LEVEL, level)
            store_i64(out + 8 * OUT_VIEW, number)
            slot = load_i64(views + 8 * VIEW_WORDS * number + 8 * VIEW_SLOT)
            if load_i64(slot + 8 * SLOT_BLOCKS) == 0:
                return NEED_META
            _count(out, OUT_SSTS)
            bits = load_i64(slot + 8 * SLOT_BLOOM)
            if bits != 0:
                if not has_hash:
                    hash64 = siphash13(key, key_len)
                    has_hash = True
                size = load_i64(slot + 8 * SLOT_BLOOM_LEN)
                if not may_contain(bits, size, load_i64(slot + 8 * SLOT_BLOOM_PROBES), hash64):
                    _count(out, OUT_FILTER_NEGATIVES)
                    continue
                _count(out, OUT_FILTER_POSITIVES)
            status = _find_in_sst(slot, key, key_len, max_seq, out)
            if status != ABSENT:
                return status
            if bits != 0:
                _count(out, OUT_FILTER_FALSE_POSITIVES)
    return ABSENT


@helper
def find(key: int, key_len: int, max_seq: Any, level_table: int, n_levels: int, out: int) -> int:
    """``lookup`` of a key at an address."""
    negatives = load_i64(out + 8 * OUT_FILTER_NEGATIVES)
    positives = load_i64(out + 8 * OUT_FILTER_POSITIVES)
    false_positives = load_i64(out + 8 * OUT_FILTER_FALSE_POSITIVES)
    ssts = load_i64(out + 8 * OUT_SSTS)
    blocks = load_i64(out + 8 * OUT_BLOCKS)
    status = _find(key, key_len, max_seq, level_table, n_levels, out)
    if status != FOUND and status != ABSENT:
        # Whoever reads what is missing looks at everything again, and counts it then.
        store_i64(out + 8 * OUT_FILTER_NEGATIVES, negatives)
        store_i64(out + 8 * OUT_FILTER_POSITIVES, positives)
        store_i64(out + 8 * OUT_FILTER_FALSE_POSITIVES, false_positives)
        store_i64(out + 8 * OUT_SSTS, ssts)
        store_i64(out + 8 * OUT_BLOCKS, blocks)
    return status


@kernel(types.int64(_BYTES, types.uint64, types.int64, types.int64, types.int64), nogil=False)
def lookup(key: Any, max_seq: Any, level_table: int, n_levels: int, out: int) -> int:
    """Find the newest row of a key at or below ``max_seq``; see ``lookup_layout``."""
    return find(data_of(key), len(key), max_seq, level_table, n_levels, out)


@kernel("void(int64, int64, int64, uint64, int64, int64, int64, int64)", nogil=False)
def lookup_many(
    keys: int, key_offsets: int, count: int, max_seq: Any, level_table: int, n_levels: int, out: int, statuses: int
) -> None:
    """``lookup`` of many keys, each with its own record in ``out``."""
    for number in range(count):
        start = load_i64(key_offsets + 8 * number)
        size = load_i64(key_offsets + 8 * number + 8) - start
        record = out + 8 * OUT_WORDS * number
        store_i64(statuses + 8 * number, find(keys + start, size, max_seq, level_table, n_levels, record))


@kernel(types.int64(_BYTES, types.int64), nogil=False)
def lookup_value(key: Any, record: int) -> int:
    """Find the newest value of a key and copy it; see ``lookup_layout``."""
    out = load_i64(record + 8 * RECORD_OUT)
    max_seq = load_u64(record + 8 * RECORD_MAX_SEQ)
    levels = load_i64(record + 8 * RECORD_LEVELS)
    status = find(data_of(key), len(key), max_seq, load_i64(record + 8 * RECORD_TABLE), levels, out)
    if status != FOUND:
        return status
    flags = load_i64(out + 8 * OUT_FLAGS)
    if flags & FLAG_TOMBSTONE:
        return ABSENT
    size = load_i64(out + 8 * OUT_VALUE_LEN)
    if flags & FLAG_MERGE or size > load_i64(record + 8 * RECORD_INTO_SIZE):
        return FOUND
    copy(load_i64(record + 8 * RECORD_INTO), load_i64(out + 8 * OUT_IMAGE) + load_i64(out + 8 * OUT_VALUE), size)
    return size << VALUE_SHIFT | VALUE


@kernel("void(int64, int64, int64, int64)")
def gather_values(records: int, offsets: int, count: int, into: int) -> None:
    """Copy the value of each record to its place, where the offsets leave room for it."""
    for number in range(count):
        start = load_i64(offsets + 8 * number)
        size = load_i64(offsets + 8 * number + 8) - start
        if size > 0:
            record = records + 8 * OUT_WORDS * number
            copy(into + start, load_i64(record + 8 * OUT_IMAGE) + load_i64(record + 8 * OUT_VALUE), size)
