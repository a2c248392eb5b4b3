"""Kernel: many point lookups over the SSTs of one tree, in one call (tables: ``layout.point_lookup``).

One lookup waits for memory again and again: for the filter, the index, the block, the row.  So a few keys go side by
side, one step of all before the next step of any, and what the next step reads is asked for in time.
"""

from typing import Any

from shale.kernels.layout.point_lookup import (
    ABSENT,
    FOUND,
    LANES,
    NEED_BLOCK,
    NEED_META,
    OUT_AT,
    OUT_BLOCK,
    OUT_BLOCKS,
    OUT_FILTER_NEGATIVES,
    OUT_HASH,
    OUT_IMAGE,
    OUT_KEY,
    OUT_KEY_LEN,
    OUT_LAST,
    OUT_LEVEL,
    OUT_SLOT,
    OUT_STATUS,
    OUT_VIEW,
    OUT_WORDS,
    PLACE_BLOCK_BITS,
    PLACE_VIEW_BITS,
    SLOT_VERSION,
)
from shale.kernels.source.jit import helper, kernel
from shale.kernels.source.memory import LINE_BYTES, add_word, load_u64, prefetch, set_word, store_u64, word
from shale.kernels.source.point_lookup.block import NOT_IN_BLOCK, begin_in_block, find_from
from shale.kernels.source.point_lookup.sst import (
    answer_of,
    begin,
    find_in_sst,
    find_on,
    image_of,
    next_sst,
    note_absence,
    note_use,
    set_blocks,
    status_of,
)
from shale.kernels.source.python_objects import IS_NONE, bytes_at, put_answer
from shale.kernels.source.siphash import siphash13


@helper
def _take_keys(keys: int, first: int, count: int, lanes: int) -> bool:
    """Give each lane its key; false after an exception."""
    for lane in range(count):
        out = lanes + 8 * OUT_WORDS * lane
        key, key_len = bytes_at(keys, first + lane)
        if key_len < 0:
            return False
        set_word(out, OUT_KEY, key)
        set_word(out, OUT_KEY_LEN, key_len)
    return True


@helper
def _seek_sst(level_table: int, n_levels: int, out: int) -> None:
    """Begin the search of a lane: the first SST that may have its key, and the block there."""
    key, key_len = word(out, OUT_KEY), word(out, OUT_KEY_LEN)
    hash64 = siphash13(key, key_len)
    store_u64(out + 8 * OUT_HASH, hash64)
    for each in range(OUT_FILTER_NEGATIVES, OUT_BLOCKS + 1):
        set_word(out, each, 0)
    set_word(out, OUT_IMAGE, 0)
    begin(out)
    status = next_sst(key, key_len, hash64, level_table, n_levels, out)
    set_word(out, OUT_STATUS, status)
    if status == FOUND:
        slot = word(out, OUT_SLOT)
        set_blocks(slot, key, key_len, out)
        block = word(out, OUT_BLOCK)
        image, size = image_of(slot, block) if block < word(out, OUT_LAST) else (0, 0)
        if image != 0:
            prefetch(image)
            prefetch(image + size - 2)
            prefetch(image + size - 2 - LINE_BYTES)
            set_word(out, OUT_IMAGE, image)


@helper
def _seek_row(out: int) -> None:
    """Find where in its block a lane begins to look."""
    if word(out, OUT_IMAGE) != 0:
        slot = word(out, OUT_SLOT)
        image, size = image_of(slot, word(out, OUT_BLOCK))
        key, key_len = word(out, OUT_KEY), word(out, OUT_KEY_LEN)
        set_word(out, OUT_AT, begin_in_block(image, size, word(slot, SLOT_VERSION), key, key_len))


@helper
def _finish(max_seq: Any, level_table: int, n_levels: int, out: int) -> int:
    """End the search of a lane."""
    status = word(out, OUT_STATUS)
    if status != FOUND:
        return status
    slot, block = word(out, OUT_SLOT), word(out, OUT_BLOCK)
    key, key_len = word(out, OUT_KEY), word(out, OUT_KEY_LEN)
    in_block = NOT_IN_BLOCK
    if word(out, OUT_IMAGE) != 0:
        image, size = image_of(slot, block)
        note_use(slot, block, image, out)
        version = word(slot, SLOT_VERSION)
        in_block = find_from(word(out, OUT_AT), image, size, version, key, key_len, max_seq, out)
        set_word(out, OUT_BLOCK, block + 1)
    status = find_in_sst(slot, key, key_len, max_seq, out) if in_block == NOT_IN_BLOCK else status_of(in_block)
    if status != ABSENT:
        return status
    note_absence(slot, out)
    return find_on(key, key_len, load_u64(out + 8 * OUT_HASH), max_seq, level_table, n_levels, out)


@helper
def _place_of(status: int, out: int) -> int:
    """Return where the search of a lane stopped."""
    sst = word(out, OUT_LEVEL) << PLACE_VIEW_BITS | word(out, OUT_VIEW)
    return sst << PLACE_BLOCK_BITS | (word(out, OUT_BLOCK) + 1 if status == NEED_BLOCK else 0)


@kernel("count(object, object, i64, u64, i64, i64, i64, i64, i64)", holds_lock=True)
def lookup_many(
    keys: int,
    answers: int,
    count: int,
    max_seq: Any,
    level_table: int,
    n_levels: int,
    lanes: int,
    counts: int,
    missing: int,
) -> int:
    """Find the newest values of many keys; see ``layout.point_lookup``."""
    undecided = 0
    for first in range(0, count, LANES):
        taken = min(LANES, count - first)
        if not _take_keys(keys, first, taken, lanes):
            return -1
        for lane in range(taken):
            _seek_sst(level_table, n_levels, lanes + 8 * OUT_WORDS * lane)
        for lane in range(taken):
            _seek_row(lanes + 8 * OUT_WORDS * lane)
        for lane in range(taken):
            out = lanes + 8 * OUT_WORDS * lane
            status = _finish(max_seq, level_table, n_levels, out)
            if status in (FOUND, ABSENT):  # the others count when they are looked at again
                for each in range(OUT_FILTER_NEGATIVES, OUT_BLOCKS + 1):
                    add_word(counts, each, word(out, each))
            kind, address, size = answer_of(status, out)
            if kind != IS_NONE and not put_answer(answers, first + lane, kind, address, size):
                return -1
            if kind > IS_NONE:
                undecided += 1
                if missing != 0 and status in (NEED_META, NEED_BLOCK):
                    set_word(missing, first + lane, _place_of(status, out))
    return undecided
