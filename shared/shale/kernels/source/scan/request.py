"""Kernel parts: the request of a scan of cached blocks, and its answer (``layout.scan``)."""

from shale.kernels.layout.cursor import CURSOR_BYTES
from shale.kernels.layout.merge_visible import MAX_SEQ_HERE
from shale.kernels.layout.point_lookup import LEVEL_COUNT, LEVEL_VIEWS, LEVEL_WORDS
from shale.kernels.layout.scan import (
    BLOCK,
    BLOCK_AT,
    BUFFER_BYTES,
    BUFFERS_AT,
    BYTES_LEFT_AT,
    BYTES_MAX,
    COLUMNS,
    COUNTS,
    CURSORS_AT,
    END_LEN,
    INVALID,
    KEPT_KEYS,
    KEPT_KEYS_AT,
    KEPT_ROWS,
    KEPT_ROWS_AT,
    KEY_BUFFER,
    LEVEL_NEEDS_BLOCK,
    LEVEL_NEEDS_META,
    LEVEL_TOO_LARGE,
    MISSES,
    MISSES_AT,
    NEED_BLOCK,
    NEED_META,
    RANGE_AT,
    RANGE_COUNTS,
    RANGE_END,
    RANGE_END_LEN,
    RANGE_START,
    RANGE_START_LEN,
    REQUEST_WORDS,
    ROW_END,
    SCRATCH,
    SOURCE_AT,
    SOURCE_WORDS,
    SOURCES_AT,
    SOURCES_MAX,
    SST_MAX_SEQ,
    START_LEN,
    STATUS_MASK,
    TABLE_COLUMNS,
    TABLE_MAX_SEQ,
    TABLE_ROWS,
    TABLE_WORDS,
    TABLES,
    TOO_LARGE,
    TREE_LEVELS,
    TREE_TABLE,
    TREE_WORDS,
    TREES,
    VIEW,
    VIEW_AT,
    VIEW_COUNT,
    VIEWS,
    WALK_LEFT_AT,
    WALK_MAX,
    WINDOW,
    WINDOW_WORDS,
    WINDOWS,
)
from shale.kernels.source.jit import helper, inlined
from shale.kernels.source.memory import set_word, word


@helper
def take_request(request: int) -> int:
    """Write the sources and the range into the scratch memory; return how many sources, -1: too many."""
    scratch = word(request, SCRATCH)
    at = request + 8 * REQUEST_WORDS
    tables = at + 8 * TREE_WORDS * word(request, TREES)
    count = word(request, TABLES)
    if count > SOURCES_MAX:
        return -1
    for number in range(count):
        table = tables + 8 * TABLE_WORDS * number
        source = scratch + SOURCES_AT + 8 * SOURCE_WORDS * number
        set_word(source, VIEW_COUNT, 0)
        set_word(source, COLUMNS, word(table, TABLE_COLUMNS))
        set_word(source, ROW_END, word(table, TABLE_ROWS))
        set_word(scratch + CURSORS_AT + CURSOR_BYTES * number, MAX_SEQ_HERE, word(table, TABLE_MAX_SEQ))
    keys = tables + 8 * TABLE_WORDS * count
    window, window_bytes = word(request, WINDOWS), 0 if word(request, WINDOWS) == 0 else 8 * WINDOW_WORDS
    for _ in range(word(request, TREES)):
        level, levels = word(at, TREE_TABLE), word(at, TREE_LEVELS)
        if count + levels > SOURCES_MAX:
            return -1
        for number in range(count, count + levels):
            source = scratch + SOURCES_AT + 8 * SOURCE_WORDS * number
            buffers = scratch + BUFFERS_AT + BUFFER_BYTES * number
            set_word(source, VIEWS, word(level, LEVEL_VIEWS))
            set_word(source, VIEW_COUNT, word(level, LEVEL_COUNT))
            set_word(source, WINDOW, window)
            window += window_bytes
            set_word(source, KEY_BUFFER, buffers)
            set_word(source, KEPT_ROWS, buffers + KEPT_ROWS_AT)
            set_word(source, KEPT_KEYS, buffers + KEPT_KEYS_AT)
            set_word(scratch + CURSORS_AT + CURSOR_BYTES * number, MAX_SEQ_HERE, word(request, SST_MAX_SEQ))
            level += 8 * LEVEL_WORDS
        count += levels
        at += 8 * TREE_WORDS
    note_rest(request, word(request, WALK_MAX), word(request, BYTES_MAX))
    limits = scratch + RANGE_AT
    start_len = word(request, START_LEN)
    set_word(limits, RANGE_START, keys)
    set_word(limits, RANGE_START_LEN, start_len)
    set_word(limits, RANGE_END, keys + max(start_len, 0))
    set_word(limits, RANGE_END_LEN, word(request, END_LEN))
    set_word(limits, RANGE_COUNTS, word(request, COUNTS))
    return count


@inlined
def note_rest(request: int, walk_left: int, bytes_left: int) -> None:
    """Write what is left to do into the scratch memory, and that nothing is missing."""
    scratch = word(request, SCRATCH)
    set_word(scratch + WALK_LEFT_AT, 0, walk_left)
    set_word(scratch + BYTES_LEFT_AT, 0, bytes_left)
    set_word(scratch + MISSES_AT, 0, 0)


@inlined
def is_miss(answer: int) -> bool:
    """Return whether an answer names a part that is not in memory."""
    return answer & STATUS_MASK in (NEED_META, NEED_BLOCK)


@helper
def note_miss(request: int, answer: int) -> int:
    """Add an answer to those of the sources that miss a part, and return the first of them."""
    scratch = word(request, SCRATCH)
    count = word(scratch + MISSES_AT, 0)
    set_word(scratch + MISSES, count, answer)
    set_word(scratch + MISSES_AT, 0, count + 1)
    return word(scratch + MISSES, 0)


@inlined
def is_table(source: int) -> bool:
    """Return whether a source is a table in memory, and not a level of SSTs."""
    return word(source, VIEW_COUNT) == 0


@helper
def answer_of(status: int, number: int, source: int) -> int:
    """Return the answer for a source that cannot go on."""
    if status == LEVEL_TOO_LARGE:
        return TOO_LARGE
    if status not in (LEVEL_NEEDS_META, LEVEL_NEEDS_BLOCK):
        return INVALID
    place = number << SOURCE_AT | word(source, VIEW) << VIEW_AT
    if status == LEVEL_NEEDS_META:
        return NEED_META | place
    return NEED_BLOCK | place | word(source, BLOCK) << BLOCK_AT
