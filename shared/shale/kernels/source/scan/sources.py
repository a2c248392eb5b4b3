"""Kernel parts: the levels and tables that a scan of cached blocks merges (``layout.scan``).

A level is walked block by block and view by view, within the range of the scan and of each view.
"""

from typing import Any

import numpy as np

from shale.kernels.columns import KEY_BYTES, KEY_OFFSETS
from shale.kernels.layout.cursor import (
    BASE_KEY,
    BASE_LEN,
    BLOCKS,
    DATA,
    DATA_END,
    END,
    END_HIGH,
    END_LEN,
    END_LOW,
    HAS_CHECKSUMS,
    IS_PAST_END,
    KEY,
    ROW,
    ROW_AT,
    ROWS_END,
    START,
    START_LEN,
    USED_UP,
    VERSION,
)
from shale.kernels.layout.cursor import BLOCK as CURSOR_BLOCK
from shale.kernels.layout.cursor import BOUNDS as CURSOR_BOUNDS
from shale.kernels.layout.decoder import BAD_ROW
from shale.kernels.layout.merge_visible import COLUMNS_VERSION
from shale.kernels.layout.point_lookup import (
    OUT_BLOCKS,
    OUT_SSTS,
    SLOT_BLOCKS,
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
from shale.kernels.layout.scan import (
    BASE_KEY_AT,
    BLOCK,
    BOUNDS,
    COLUMNS,
    FIRST_BLOCK,
    KEY_BUFFER,
    KEY_BYTES_MAX,
    LEVEL_NEEDS_BLOCK,
    LEVEL_NEEDS_META,
    LEVEL_TOO_LARGE,
    RANGE_COUNTS,
    RANGE_END,
    RANGE_END_LEN,
    RANGE_START,
    RANGE_START_LEN,
    ROW_END,
    ROW_START,
    SLOT,
    VIEW,
    VIEW_COUNT,
    VIEWS,
    WINDOW,
    WINDOW_DATA,
    WINDOW_END,
    WINDOW_FIRST,
    WINDOW_OFFSETS,
    WINDOW_VIEW,
)
from shale.kernels.source.block.cursor import next_row, open_next_block
from shale.kernels.source.compare import compare_bytes, word_of
from shale.kernels.source.jit import helper
from shale.kernels.source.memory import add_word, load_i64, load_u16be, set_word, store_u8, store_u64, word
from shale.kernels.source.point_lookup.block import restart_before
from shale.kernels.source.point_lookup.sst import count_separators, image_of, is_separator

CHECKSUM_BYTES = 4


@helper
def begin_table(cursor: int, source: int, limits: int) -> int:
    """Find the rows of a table in the range, and stand before the first."""
    start, start_len = word(limits, RANGE_START), word(limits, RANGE_START_LEN)
    end, end_len = word(limits, RANGE_END), word(limits, RANGE_END_LEN)
    columns, count = word(source, COLUMNS), word(source, ROW_END)
    first = _lower_bound(columns, count, start, start_len) if start_len >= 0 else 0
    last = _lower_bound(columns, count, end, end_len) if end_len >= 0 else count
    set_word(source, ROW_START, first)
    set_word(source, ROW_END, last)
    set_word(cursor, VERSION, COLUMNS_VERSION)
    set_word(cursor, DATA, columns)
    set_word(cursor, ROW_AT, first)
    set_word(cursor, ROWS_END, last)
    return ROW if first < last else USED_UP


@helper
def _lower_bound(columns: int, count: int, key: int, key_len: int) -> int:
    keys, offsets = word(columns, KEY_BYTES), word(columns, KEY_OFFSETS)
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        at = load_i64(offsets + 8 * middle)
        if compare_bytes(keys + at, load_i64(offsets + 8 * middle + 8) - at, key, key_len) < 0:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def first_view(source: int, limits: int) -> int:
    """Return the number of the first view of a level that ends after the start of the range."""
    return _count_views(source, word(limits, RANGE_START), word(limits, RANGE_START_LEN), True)


@helper
def last_view(source: int, limits: int) -> int:
    """Return the number of the last view of a level that begins before the end of the range; -1: none does."""
    end_len = word(limits, RANGE_END_LEN)
    count = word(source, VIEW_COUNT) if end_len < 0 else _count_views(source, word(limits, RANGE_END), end_len, False)
    return count - 1


@helper
def _count_views(source: int, key: int, key_len: int, by_end: bool) -> int:
    """Count the views that end at or before a key, or that begin before it; a length below 0 is before all."""
    low, high = 0, word(source, VIEW_COUNT) if key_len >= 0 else 0
    while low < high:
        middle = (low + high) // 2
        view = word(source, VIEWS) + 8 * VIEW_WORDS * middle
        if _ends_by(view, key, key_len) if by_end else not _begins_at_or_after(view, key, key_len):
            low = middle + 1
        else:
            high = middle
    return low


@helper
def ends_before_range(view: int, limits: int) -> bool:
    """Return whether a view shows only keys before the range."""
    start_len = word(limits, RANGE_START_LEN)
    return start_len >= 0 and _ends_by(view, word(limits, RANGE_START), start_len)


@helper
def _ends_by(view: int, key: int, key_len: int) -> bool:
    size = word(view, VIEW_END_LEN)
    return size >= 0 and compare_bytes(word(view, VIEW_END), size, key, key_len) <= 0


@helper
def _begins_at_or_after(view: int, key: int, key_len: int) -> bool:
    """Return whether a view shows only keys at or after this one."""
    size = word(view, VIEW_START_LEN)
    return key_len >= 0 and size >= 0 and compare_bytes(word(view, VIEW_START), size, key, key_len) >= 0


@helper
def open_view(cursor: int, source: int, limits: int) -> int:
    """Prepare the view ``VIEW`` of a level for reading within the range; ``USED_UP``: it has no key there."""
    start, start_len = word(limits, RANGE_START), word(limits, RANGE_START_LEN)
    end, end_len = word(limits, RANGE_END), word(limits, RANGE_END_LEN)
    view = word(source, VIEWS) + 8 * VIEW_WORDS * word(source, VIEW)
    slot = word(view, VIEW_SLOT)
    if word(slot, SLOT_BLOCKS) == 0:
        return LEVEL_NEEDS_META
    set_word(source, SLOT, slot)
    at, size = word(view, VIEW_START), word(view, VIEW_START_LEN)
    if size >= 0 and (start_len < 0 or compare_bytes(at, size, start, start_len) > 0):
        start, start_len = at, size
    at, size = word(view, VIEW_END), word(view, VIEW_END_LEN)
    if size >= 0 and (end_len < 0 or compare_bytes(at, size, end, end_len) < 0):
        end, end_len = at, size
    if start_len >= 0 and end_len >= 0 and compare_bytes(start, start_len, end, end_len) >= 0:
        return USED_UP
    set_word(cursor, VERSION, word(slot, SLOT_VERSION))
    set_word(cursor, KEY, word(source, KEY_BUFFER))
    set_word(cursor, BASE_KEY, word(source, KEY_BUFFER) + (0 if word(slot, SLOT_VERSION) == 2 else BASE_KEY_AT))
    set_word(cursor, START, start if start_len > 0 else 0)
    set_word(cursor, START_LEN, start_len)
    set_word(cursor, END, end if end_len >= 0 else 0)
    set_word(cursor, END_LEN, end_len)
    if end_len >= 0:
        store_u64(cursor + 8 * END_HIGH, word_of(end, end_len))
        store_u64(cursor + 8 * END_LOW, word_of(end + 8, end_len - 8) if end_len > 8 else np.uint64(0))
    set_word(cursor, IS_PAST_END, 0)
    block = 0
    if start_len > 0:
        block = max(count_separators(slot, word(slot, SLOT_BLOCKS), start, start_len) - 1, 0)
        while block > 0 and is_separator(slot, block, start, start_len):  # versions of the key in the block before
            block -= 1
    set_word(source, FIRST_BLOCK, block)
    add_word(word(limits, RANGE_COUNTS), OUT_SSTS, 1)
    return ROW


@helper
def open_block(cursor: int, source: int, block: int, limits: int) -> int:
    """Let the cursor begin a block of the open view."""
    slot = word(source, SLOT)
    set_word(source, BLOCK, block)
    image, size = image_of(slot, block)
    is_cached = image != 0
    if not is_cached:
        image, size = _in_window(source, block)
        if image == 0:
            return LEVEL_NEEDS_BLOCK
    if size > KEY_BYTES_MAX:
        return LEVEL_TOO_LARGE
    if is_cached:
        store_u8(word(slot, SLOT_TOUCHED) + block, 1)
        add_word(word(limits, RANGE_COUNTS), OUT_BLOCKS, 1)
    bounds = source + 8 * BOUNDS
    set_word(bounds, 0, 0)
    set_word(bounds, 1, size if is_cached else size + CHECKSUM_BYTES)
    set_word(cursor, HAS_CHECKSUMS, 0 if is_cached else 1)
    set_word(cursor, CURSOR_BOUNDS, bounds)
    set_word(cursor, DATA, image)
    set_word(cursor, DATA_END, image + size)
    set_word(cursor, BLOCKS, 1)
    set_word(cursor, CURSOR_BLOCK, -1)
    status = open_next_block(cursor)
    if status == ROW and word(cursor, START) != 0 and word(cursor, VERSION) == 2:
        count = load_u16be(image + size - 2)
        at = restart_before(image, word(cursor, ROWS_END), count, word(cursor, START), word(cursor, START_LEN))
        if at == 0:
            return BAD_ROW
        set_word(cursor, ROW_AT, at)
        set_word(cursor, BASE_LEN, 0)
    return status


@helper
def _in_window(source: int, block: int) -> Any:
    """Return address and size of a block of the open view in the window of its level; the address 0: it is not there.

    Its checksum follows it.
    """
    window = word(source, WINDOW)
    if window == 0 or word(window, WINDOW_VIEW) != word(source, VIEW):
        return 0, 0
    first = word(window, WINDOW_FIRST)
    if block < first or block >= word(window, WINDOW_END):
        return 0, 0
    offsets = word(window, WINDOW_OFFSETS)
    start = word(offsets, block)
    return word(window, WINDOW_DATA) + start - word(offsets, first), word(offsets, block + 1) - start - CHECKSUM_BYTES


@helper
def ends_before_block(cursor: int, source: int, block: int) -> bool:
    """Return whether the range ends before a block of the open view."""
    end_len = word(cursor, END_LEN)
    if end_len < 0:
        return False
    slot = word(source, SLOT)
    at = word(slot, SLOT_INDEX_OFFSETS) + 8 * block
    start = load_i64(at)
    return compare_bytes(word(slot, SLOT_INDEX) + start, load_i64(at + 8) - start, word(cursor, END), end_len) >= 0


@helper
def first_in_level(cursor: int, source: int, limits: int) -> int:
    """Go to the first row of a level in the range."""
    set_word(source, VIEW, first_view(source, limits) - 1)
    status = _next_view(cursor, source, limits)
    return next_in_level(cursor, source, limits) if status == ROW else status


@helper
def next_in_level(cursor: int, source: int, limits: int) -> int:
    """Go to the next row of a level in the range; return ``ROW``, ``USED_UP``, or why there is none yet."""
    while True:
        status = next_row(cursor, False)
        if status != USED_UP:
            return status
        block = word(source, BLOCK) + 1
        if (
            word(cursor, IS_PAST_END) == 0
            and block < word(word(source, SLOT), SLOT_BLOCKS)
            and not ends_before_block(cursor, source, block)
        ):
            status = open_block(cursor, source, block, limits)
        else:
            status = _next_view(cursor, source, limits)
        if status != ROW:
            return status


@helper
def _next_view(cursor: int, source: int, limits: int) -> int:
    while True:
        view = word(source, VIEW) + 1
        if view >= word(source, VIEW_COUNT):
            return USED_UP
        end_len = word(limits, RANGE_END_LEN)
        if _begins_at_or_after(word(source, VIEWS) + 8 * VIEW_WORDS * view, word(limits, RANGE_END), end_len):
            return USED_UP
        set_word(source, VIEW, view)
        status = open_view(cursor, source, limits)
        if status == ROW:
            status = open_block(cursor, source, word(source, FIRST_BLOCK), limits)
        if status != USED_UP:
            return status
