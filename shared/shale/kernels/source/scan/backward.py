"""Kernel parts: the visible rows of a range in descending order (``layout.scan``).

Keys of a block are compressed from its start, so a level keeps all rows of the open block and gives them from the end.
Of a key the oldest version comes first: the newest visible one is known at the next key.
"""

from shale.kernels.layout.cursor import (
    CREATED,
    CURSOR_BYTES,
    END,
    END_LEN,
    FLAGS,
    HIGH,
    IS_PAST_END,
    KEY,
    KEY_LEN,
    LOW,
    OUT_OF_ORDER,
    ROW,
    ROW_AT,
    SEQ,
    START,
    START_LEN,
    TIMES,
    USED_UP,
    VALUE_LEN,
    VERSION,
)
from shale.kernels.layout.merge_visible import MAX_SEQ_HERE
from shale.kernels.layout.point_lookup import SLOT_BLOCKS, VIEW_WORDS
from shale.kernels.layout.scan import (
    BLOCK,
    BYTES_MAX,
    CURSORS_AT,
    FIRST_BLOCK,
    HAS_NOW,
    INVALID,
    KEPT_KEY,
    KEPT_KEY_LEN,
    KEPT_KEYS,
    KEPT_ROWS,
    KEPT_SEQ,
    KEPT_WORDS,
    KEY_BUFFER,
    KEY_BYTES_MAX,
    KEYS_OF_BLOCK_MAX,
    LEVEL_TOO_LARGE,
    LOWER,
    LOWER_LEN,
    MET_AT,
    MORE,
    NEED_FOLD,
    NEWEST_AT,
    NOW,
    ORDER_AT,
    RANGE_AT,
    ROW_END,
    ROW_START,
    ROWS_MAX,
    ROWS_OF_BLOCK_MAX,
    SCRATCH,
    SLOT,
    SOURCE_WORDS,
    SOURCES_AT,
    TOO_LARGE,
    VIEW,
    VIEWS,
    WALK_MAX,
    WALKED,
)
from shale.kernels.layout.scan import END as END_OF_RANGE
from shale.kernels.source.block.cursor import next_row
from shale.kernels.source.compare import compare_bytes, word_of
from shale.kernels.source.jit import helper, inlined
from shale.kernels.source.memory import copy, copy_loose, load_u64, set_word, store_u64, word
from shale.kernels.source.merge.mixed_cursor import read_columns, time_of
from shale.kernels.source.point_lookup.sst import count_separators
from shale.kernels.source.scan.live_order import drop_first, put_first
from shale.kernels.source.scan.objects import append_object
from shale.kernels.source.scan.request import answer_of, is_miss, is_table, note_miss, note_rest
from shale.kernels.source.scan.sources import begin_table, ends_before_range, last_view, open_block, open_view
from shale.types import FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE

_VERSION_BYTES = 8 * (CREATED + 1 - SEQ)
"""The words of a cursor that tell one version of its key, side by side."""
_HIDDEN = 0
_GIVEN = 1
_FAILED = -1


@helper
def _keep_block(cursor: int, source: int, block: int, limits: int) -> int:
    """Keep the rows of a block that are in the range; ``USED_UP``: there are none."""
    set_word(cursor, KEY, word(source, KEY_BUFFER))
    set_word(cursor, START, word(source, LOWER))
    set_word(cursor, START_LEN, word(source, LOWER_LEN))
    set_word(cursor, IS_PAST_END, 0)
    status = open_block(cursor, source, block, limits)
    rows, keys_len, before, before_len = 0, 0, 0, 0
    while status == ROW:
        status = next_row(cursor, False)
        if status == ROW:
            key_len = word(cursor, KEY_LEN)
            if rows == ROWS_OF_BLOCK_MAX or keys_len + key_len > KEYS_OF_BLOCK_MAX:
                return LEVEL_TOO_LARGE
            kept = word(source, KEPT_ROWS) + 8 * KEPT_WORDS * rows
            key = word(source, KEPT_KEYS) + keys_len
            copy_loose(key, word(cursor, KEY), key_len)
            if rows > 0 and compare_bytes(key, key_len, before, before_len) < 0:
                return OUT_OF_ORDER
            before, before_len = key, key_len
            set_word(kept, KEPT_KEY, key)
            set_word(kept, KEPT_KEY_LEN, key_len)
            copy(kept + 8 * KEPT_SEQ, cursor + 8 * SEQ, _VERSION_BYTES)
            rows += 1
            keys_len += key_len
    set_word(source, ROW_END, rows)
    return ROW if status == USED_UP and rows > 0 else status


@helper
def _open_last_block(cursor: int, source: int, limits: int) -> int:
    """Open the view ``VIEW`` of a level at its last block in the range."""
    status = open_view(cursor, source, limits)
    if status != ROW:
        return status
    set_word(source, LOWER, word(cursor, START))
    set_word(source, LOWER_LEN, word(cursor, START_LEN))
    slot = word(source, SLOT)
    last = word(slot, SLOT_BLOCKS) - 1
    if word(cursor, END_LEN) >= 0:
        last = max(count_separators(slot, last + 1, word(cursor, END), word(cursor, END_LEN)) - 1, 0)
    return _keep_block(cursor, source, last, limits)


@helper
def _previous_in_level(cursor: int, source: int, limits: int) -> int:
    """Go to the row before; return ``ROW``, ``USED_UP``, or why there is none yet."""
    while word(source, ROW_END) == 0:
        if word(source, BLOCK) > word(source, FIRST_BLOCK):
            status = _keep_block(cursor, source, word(source, BLOCK) - 1, limits)
        else:
            view = word(source, VIEW) - 1
            if view < 0 or ends_before_range(word(source, VIEWS) + 8 * VIEW_WORDS * view, limits):
                return USED_UP
            set_word(source, VIEW, view)
            set_word(source, BLOCK, 0)
            set_word(source, FIRST_BLOCK, 0)
            status = _open_last_block(cursor, source, limits)
        if status not in (ROW, USED_UP):
            return status
    place = word(source, ROW_END) - 1
    set_word(source, ROW_END, place)
    kept = word(source, KEPT_ROWS) + 8 * KEPT_WORDS * place
    key, key_len = word(kept, KEPT_KEY), word(kept, KEPT_KEY_LEN)
    set_word(cursor, KEY, key)
    set_word(cursor, KEY_LEN, key_len)
    store_u64(cursor + 8 * HIGH, word_of(key, key_len))
    set_word(cursor, LOW, 0)
    if key_len > 8:
        store_u64(cursor + 8 * LOW, word_of(key + 8, key_len - 8))
    copy(cursor + 8 * SEQ, kept + 8 * KEPT_SEQ, _VERSION_BYTES)
    return ROW


@inlined
def _previous(cursor: int, source: int, limits: int) -> int:
    if not is_table(source):
        return _previous_in_level(cursor, source, limits)
    place = word(source, ROW_END) - 1
    if place < word(source, ROW_START):
        return USED_UP
    set_word(source, ROW_END, place)
    set_word(cursor, ROW_AT, place)
    return read_columns(cursor)


@helper
def _last(cursor: int, source: int, limits: int) -> int:
    """Go to the last row of a source in the range."""
    if is_table(source):
        if begin_table(cursor, source, limits) != ROW:
            return USED_UP
    else:
        set_word(source, VIEW, last_view(source, limits) + 1)
        set_word(source, BLOCK, 0)
        set_word(source, FIRST_BLOCK, 0)
        set_word(source, ROW_END, 0)
    return _previous(cursor, source, limits)


@inlined
def _insert_last(cursors: int, order: int, live: int) -> None:
    """Move the first source, whose row is new, to its place: the greatest key comes first."""
    number = word(order, 0)
    for place in range(1, live):
        other = word(order, place)
        if not _has_greater_key(cursors + CURSOR_BYTES * other, cursors + CURSOR_BYTES * number):
            break
        set_word(order, place - 1, other)
        set_word(order, place, number)


@inlined
def _has_greater_key(left: int, right: int) -> bool:
    one, other = load_u64(left + 8 * HIGH), load_u64(right + 8 * HIGH)
    if one != other:
        return one > other
    return compare_bytes(word(left, KEY), word(left, KEY_LEN), word(right, KEY), word(right, KEY_LEN)) > 0


@helper
def _begin(request: int, sources: int) -> int:
    """Go to the last row of each source; return how many have one, or the answer with all bits flipped."""
    scratch = word(request, SCRATCH)
    cursors, order, live, missing = scratch + CURSORS_AT, scratch + ORDER_AT, 0, 0
    for number in range(sources):
        source = scratch + SOURCES_AT + 8 * SOURCE_WORDS * number
        status = _last(cursors + CURSOR_BYTES * number, source, scratch + RANGE_AT)
        if status == ROW:
            live = put_first(order, live, number)
            _insert_last(cursors, order, live)
        elif status != USED_UP:
            answer = answer_of(status, number, source)
            if not is_miss(answer):
                return ~answer
            missing = note_miss(request, answer)
    return live if missing == 0 else ~missing


@inlined
def _is_newer(cursor: int, number: int, newest: int, source: int) -> bool:
    """Return whether a row is newer than the newest version so far; of equal ones that of the first source is."""
    seq, other = load_u64(cursor + 8 * SEQ), load_u64(newest + 8 * SEQ)
    return seq > other or (seq == other and number <= source)


@helper
def _note_version(newest: int, cursor: int) -> None:
    """Remember the row of a cursor as the newest version of the key met last."""
    copy(newest + 8 * SEQ, cursor + 8 * SEQ, _VERSION_BYTES)
    set_word(newest, VERSION, word(cursor, VERSION))


@helper
def _give(newest: int, request: int, rows: int, row_type: int, none: int) -> int:
    """Append the newest version of a key, unless it hides the key, and take it off what is wanted."""
    flags = word(newest, FLAGS)
    if flags & FLAG_TOMBSTONE:
        return _HIDDEN
    if word(request, HAS_NOW) != 0 and flags & FLAG_EXPIRE_TS and time_of(newest, TIMES) <= word(request, NOW):
        return _HIDDEN
    return _GIVEN if append_object(rows, newest, request, row_type, none) else _FAILED


@helper
def scan_backward(request: int, sources: int, rows: int, row_type: int, none: int) -> int:
    """Append the last visible rows of the range; return the answer, -1 after an exception."""
    scratch = word(request, SCRATCH)
    cursors, order, limits = scratch + CURSORS_AT, scratch + ORDER_AT, scratch + RANGE_AT
    newest, met = scratch + NEWEST_AT, scratch + MET_AT
    set_word(newest, KEY, met)
    live = _begin(request, sources)
    if live < 0:
        return ~live
    rows_left, bytes_left = word(request, ROWS_MAX), word(request, BYTES_MAX)
    has_limit = bytes_left >= 0
    met_len, is_visible, newest_source = -1, False, 0
    walk_left = word(request, WALK_MAX)
    while live > 0 or is_visible:
        walk_left -= 1
        if walk_left < 0:
            return WALKED
        number = word(order, 0)
        cursor = cursors + CURSOR_BYTES * number
        key, key_len = word(cursor, KEY), word(cursor, KEY_LEN)
        order_of_keys = -1
        if live > 0 and met_len >= 0:
            order_of_keys = compare_bytes(key, key_len, met, met_len)
        if order_of_keys > 0:
            return INVALID
        if order_of_keys < 0:
            if is_visible:
                if word(newest, FLAGS) & FLAG_MERGE:
                    return NEED_FOLD
                given = _give(newest, request, rows, row_type, none)
                if given == _FAILED:
                    return -1
                if given == _GIVEN:
                    rows_left -= 1
                    bytes_left -= met_len + word(newest, VALUE_LEN)
                    if rows_left == 0 or (has_limit and bytes_left <= 0):
                        return MORE
            is_visible = False
            if live == 0:
                break
            if key_len > KEY_BYTES_MAX:
                return TOO_LARGE
            copy(met, key, key_len)
            met_len = key_len
            set_word(newest, KEY_LEN, key_len)
        if load_u64(cursor + 8 * SEQ) <= load_u64(cursor + 8 * MAX_SEQ_HERE) and (
            not is_visible or _is_newer(cursor, number, newest, newest_source)
        ):
            _note_version(newest, cursor)
            is_visible, newest_source = True, number
        source = scratch + SOURCES_AT + 8 * SOURCE_WORDS * number
        status = _previous(cursor, source, limits)
        if status == USED_UP:
            live = drop_first(order, live)
        elif status == ROW:
            _insert_last(cursors, order, live)
        else:
            answer = answer_of(status, number, source)
            if is_miss(answer):
                note_rest(request, walk_left, bytes_left)
                note_miss(request, answer)
            return answer
    return END_OF_RANGE
