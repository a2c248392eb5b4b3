"""Kernel parts: how a key is searched in the SSTs of one tree (tables: ``layout.point_lookup``).

Per SST: ask the filter, search the index for the blocks that can hold the key, search the restarts of a block, walk
its rows.  Every number in a block is checked against the block before it is used.  The plain twin is the read path
without kernels (``shale.engine.read.lookup``).
"""

from typing import Any

from shale.kernels.layout.point_lookup import (
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
    OUT_LAST,
    OUT_LEVEL,
    OUT_SLOT,
    OUT_SSTS,
    OUT_STOP,
    OUT_VALUE,
    OUT_VALUE_LEN,
    OUT_VIEW,
    SLOT_BLOCK_TABLE,
    SLOT_BLOCKS,
    SLOT_BLOOM,
    SLOT_BLOOM_LEN,
    SLOT_BLOOM_PROBES,
    SLOT_INDEX,
    SLOT_INDEX_OFFSETS,
    SLOT_TOUCHED,
    SLOT_VERSION,
    VIEW_END,
    VIEW_END_LEN,
    VIEW_SLOT,
    VIEW_START,
    VIEW_START_LEN,
    VIEW_WORDS,
)
from shale.kernels.source.bloom import may_contain
from shale.kernels.source.compare import compare_bytes
from shale.kernels.source.jit import helper
from shale.kernels.source.memory import add_word, load_i64, set_word, store_u8, word
from shale.kernels.source.point_lookup.block import IN_BLOCK, NOT_IN_BLOCK, PAST_BLOCK, find_in_block
from shale.kernels.source.python_objects import IS_BYTES, IS_NONE
from shale.types import FLAG_MERGE, FLAG_TOMBSTONE


@helper
def _begins_by(view: int, key: int, key_len: int) -> Any:
    """Whether the view's range begins at or before the key."""
    size = load_i64(view + 8 * VIEW_START_LEN)
    if size < 0:
        return True
    return compare_bytes(load_i64(view + 8 * VIEW_START), size, key, key_len) <= 0


@helper
def _ends_before(view: int, key: int, key_len: int) -> Any:
    """Whether the view's range ends before the key."""
    size = load_i64(view + 8 * VIEW_END_LEN)
    if size < 0:
        return False
    return compare_bytes(load_i64(view + 8 * VIEW_END), size, key, key_len) <= 0


@helper
def count_separators(slot: int, blocks: int, key: int, key_len: int) -> int:
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
def is_separator(slot: int, block: int, key: int, key_len: int) -> Any:
    """Whether the separator before a block is the key itself."""
    at = load_i64(slot + 8 * SLOT_INDEX_OFFSETS) + 8 * block
    start = load_i64(at)
    size = load_i64(at + 8) - start
    return size == key_len and compare_bytes(load_i64(slot + 8 * SLOT_INDEX) + start, size, key, key_len) == 0


@helper
def _views_that_show(views: int, count: int, key: int, key_len: int) -> Any:
    """The views ``[first, stop)`` of a level that can show the key."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if _begins_by(views + 8 * VIEW_WORDS * middle, key, key_len):
            low = middle + 1
        else:
            high = middle
    stop = low
    while low > 0 and not _ends_before(views + 8 * VIEW_WORDS * (low - 1), key, key_len):
        low -= 1
    return low, stop


@helper
def _is_excluded(slot: int, hash64: Any, out: int) -> bool:
    """Whether the filter of an SST says that it has not the key."""
    bits = word(slot, SLOT_BLOOM)
    if bits == 0:
        return False
    if may_contain(bits, word(slot, SLOT_BLOOM_LEN), word(slot, SLOT_BLOOM_PROBES), hash64):
        add_word(out, OUT_FILTER_POSITIVES, 1)
        return False
    add_word(out, OUT_FILTER_NEGATIVES, 1)
    return True


@helper
def begin(out: int) -> None:
    """Before the first level."""
    set_word(out, OUT_LEVEL, -1)
    set_word(out, OUT_VIEW, -1)
    set_word(out, OUT_STOP, 0)


@helper
def next_sst(key: int, key_len: int, hash64: Any, level_table: int, n_levels: int, out: int) -> int:
    """Go on to the next SST that may have the key: ``FOUND``, ``ABSENT`` or ``NEED_META``."""
    level, number, stop = word(out, OUT_LEVEL), word(out, OUT_VIEW) + 1, word(out, OUT_STOP)
    views = word(level_table, LEVEL_WORDS * level + LEVEL_VIEWS) if number < stop else 0
    while True:
        while number >= stop:
            level += 1
            if level >= n_levels:
                return ABSENT
            views = word(level_table, LEVEL_WORDS * level + LEVEL_VIEWS)
            number, stop = _views_that_show(views, word(level_table, LEVEL_WORDS * level + LEVEL_COUNT), key, key_len)
        slot = word(views + 8 * VIEW_WORDS * number, VIEW_SLOT)
        set_word(out, OUT_LEVEL, level)
        set_word(out, OUT_VIEW, number)
        if word(slot, SLOT_BLOCKS) == 0:
            return NEED_META
        add_word(out, OUT_SSTS, 1)
        if not _is_excluded(slot, hash64, out):
            set_word(out, OUT_STOP, stop)
            set_word(out, OUT_SLOT, slot)
            return FOUND
        number += 1


@helper
def set_blocks(slot: int, key: int, key_len: int, out: int) -> None:
    """Find the blocks of an SST that can hold the key."""
    last = count_separators(slot, word(slot, SLOT_BLOCKS), key, key_len)
    first = last - 1
    while first > 0 and is_separator(slot, first, key, key_len):  # the key has versions in the block before
        first -= 1
    set_word(out, OUT_BLOCK, max(first, 0))
    set_word(out, OUT_LAST, last)


@helper
def image_of(slot: int, block: int) -> Any:
    """Address and size of the image of a block; the address is 0 if it is not in memory."""
    table = word(slot, SLOT_BLOCK_TABLE)
    return (word(table, 2 * block), word(table, 2 * block + 1)) if table != 0 else (0, 0)


@helper
def note_use(slot: int, block: int, image: int, out: int) -> None:
    store_u8(word(slot, SLOT_TOUCHED) + block, 1)
    set_word(out, OUT_IMAGE, image)
    add_word(out, OUT_BLOCKS, 1)


@helper
def find_in_sst(slot: int, key: int, key_len: int, max_seq: Any, out: int) -> int:
    """Look into the blocks from ``OUT_BLOCK`` on."""
    version = word(slot, SLOT_VERSION)
    for block in range(word(out, OUT_BLOCK), word(out, OUT_LAST)):
        set_word(out, OUT_BLOCK, block)
        image, size = image_of(slot, block)
        if image == 0:
            return NEED_BLOCK
        note_use(slot, block, image, out)
        status = find_in_block(image, size, version, key, key_len, max_seq, out)
        if status != NOT_IN_BLOCK:
            return status_of(status)
    return ABSENT


@helper
def status_of(in_block: int) -> int:
    if in_block == IN_BLOCK:
        return FOUND
    return ABSENT if in_block == PAST_BLOCK else CORRUPT


@helper
def note_absence(slot: int, out: int) -> None:
    """An SST has not the key: its filter should have known."""
    if word(slot, SLOT_BLOOM) != 0:
        add_word(out, OUT_FILTER_FALSE_POSITIVES, 1)


@helper
def find_on(key: int, key_len: int, hash64: Any, max_seq: Any, level_table: int, n_levels: int, out: int) -> int:
    """Search the SSTs after the current one."""
    while True:
        status = next_sst(key, key_len, hash64, level_table, n_levels, out)
        if status != FOUND:
            return status
        slot = word(out, OUT_SLOT)
        set_blocks(slot, key, key_len, out)
        status = find_in_sst(slot, key, key_len, max_seq, out)
        if status != ABSENT:
            return status
        note_absence(slot, out)


@helper
def answer_of(status: int, out: int) -> Any:
    """Status, address and size of what ``lookup_value`` answers."""
    if status != FOUND:
        return (IS_NONE if status == ABSENT else status), 0, 0
    flags = word(out, OUT_FLAGS)
    if flags & FLAG_TOMBSTONE:
        return IS_NONE, 0, 0
    if flags & FLAG_MERGE:
        return FOUND, 0, 0
    return IS_BYTES, word(out, OUT_IMAGE) + word(out, OUT_VALUE), word(out, OUT_VALUE_LEN)
