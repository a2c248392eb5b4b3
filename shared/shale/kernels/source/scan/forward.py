"""Kernel parts: the visible rows of a range in ascending order (``layout.scan``)."""

from shale.kernels.layout.cursor import CURSOR_BYTES, FLAGS, KEY, KEY_LEN, ROW, SEQ, TIMES, USED_UP, VALUE_LEN, VERSION
from shale.kernels.layout.merge_visible import COLUMNS_VERSION, MAX_SEQ_HERE
from shale.kernels.layout.scan import (
    BYTES_MAX,
    CURSORS_AT,
    END,
    HAS_NOW,
    INVALID,
    KEY_BYTES_MAX,
    MET_AT,
    MORE,
    NEED_FOLD,
    NOW,
    ORDER_AT,
    RANGE_AT,
    ROWS_MAX,
    SCRATCH,
    SOURCE_WORDS,
    SOURCES_AT,
    TOO_LARGE,
    WALK_MAX,
    WALKED,
)
from shale.kernels.source.compare import compare_bytes
from shale.kernels.source.jit import helper
from shale.kernels.source.memory import copy, copy_loose, load_u64, word
from shale.kernels.source.merge.blocks import insert_first
from shale.kernels.source.merge.mixed_cursor import read_columns, time_of
from shale.kernels.source.scan.live_order import drop_first, put_first
from shale.kernels.source.scan.objects import append_object
from shale.kernels.source.scan.request import answer_of, is_miss, is_table, note_miss, note_rest
from shale.kernels.source.scan.sources import begin_table, first_in_level, next_in_level
from shale.types import FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE


@helper
def _first(cursor: int, source: int, limits: int) -> int:
    if is_table(source):
        status = begin_table(cursor, source, limits)
        return read_columns(cursor) if status == ROW else status
    return first_in_level(cursor, source, limits)


@helper
def scan_forward(request: int, sources: int, rows: int, row_type: int, none: int) -> int:
    """Append the first visible rows of the range; return the answer, -1 after an exception."""
    scratch = word(request, SCRATCH)
    cursors, order, limits = scratch + CURSORS_AT, scratch + ORDER_AT, scratch + RANGE_AT
    live, missing = 0, 0
    for number in range(sources):
        source = scratch + SOURCES_AT + 8 * SOURCE_WORDS * number
        status = _first(cursors + CURSOR_BYTES * number, source, limits)
        if status == ROW:
            live = put_first(order, live, number)
            insert_first(cursors, order, live)
        elif status != USED_UP:
            answer = answer_of(status, number, source)
            if not is_miss(answer):
                return answer
            missing = note_miss(request, answer)
    if missing != 0:
        return missing
    rows_left, bytes_left = word(request, ROWS_MAX), word(request, BYTES_MAX)
    has_limit = bytes_left >= 0
    has_now, now = word(request, HAS_NOW) != 0, word(request, NOW)
    met, met_len = scratch + MET_AT, -1
    walk_left = word(request, WALK_MAX)
    while live > 0:
        walk_left -= 1
        if walk_left < 0:
            return WALKED
        number = word(order, 0)
        cursor = cursors + CURSOR_BYTES * number
        key, key_len = word(cursor, KEY), word(cursor, KEY_LEN)
        if load_u64(cursor + 8 * SEQ) <= load_u64(cursor + 8 * MAX_SEQ_HERE):
            order_of_keys = 1 if met_len < 0 else compare_bytes(key, key_len, met, met_len)
            if order_of_keys < 0:
                return INVALID
            if order_of_keys > 0:
                flags = word(cursor, FLAGS)
                if flags & FLAG_MERGE:
                    return NEED_FOLD
                if key_len > KEY_BYTES_MAX:
                    return TOO_LARGE
                met_len = key_len
                if word(cursor, VERSION) == COLUMNS_VERSION:
                    copy(met, key, key_len)
                else:
                    copy_loose(met, key, key_len)
                is_expired = has_now and flags & FLAG_EXPIRE_TS and time_of(cursor, TIMES) <= now
                if not flags & FLAG_TOMBSTONE and not is_expired:
                    if not append_object(rows, cursor, request, row_type, none):
                        return -1
                    rows_left -= 1
                    bytes_left -= key_len + word(cursor, VALUE_LEN)
                    if rows_left == 0 or (has_limit and bytes_left <= 0):
                        return MORE
        source = scratch + SOURCES_AT + 8 * SOURCE_WORDS * number
        status = (
            read_columns(cursor) if word(cursor, VERSION) == COLUMNS_VERSION else next_in_level(cursor, source, limits)
        )
        if status == USED_UP:
            live = drop_first(order, live)
        elif status == ROW:
            insert_first(cursors, order, live)
        else:
            answer = answer_of(status, number, source)
            if is_miss(answer):
                note_rest(request, walk_left, bytes_left)
                note_miss(request, answer)
            return answer
    return END
