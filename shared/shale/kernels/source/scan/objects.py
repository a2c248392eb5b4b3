"""Kernel parts: rows of a scan as Python's objects."""

from shale.kernels.layout.cursor import CREATED, FLAGS, KEY, KEY_LEN, SEQ, TIMES, VALUE, VALUE_LEN
from shale.kernels.layout.scan import AS_PAIRS
from shale.kernels.source.jit import helper, inlined
from shale.kernels.source.memory import load_u64, word
from shale.kernels.source.merge.mixed_cursor import time_of
from shale.kernels.source.python_objects import (
    append,
    drop,
    fill,
    hold,
    new_bytes,
    new_of_type,
    new_signed,
    new_tuple,
    new_unsigned,
    untrack,
)
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS

_ROW_FIELDS = 5


@inlined
def append_object(rows: int, cursor: int, request: int, row_type: int, none: int) -> bool:
    """Append the row of a cursor in the form that the request asks for; return false after an exception."""
    return _append_pair(rows, cursor) if word(request, AS_PAIRS) != 0 else _append_row(rows, cursor, row_type, none)


@helper
def _append_row(rows: int, cursor: int, row_type: int, none: int) -> bool:
    row = new_of_type(row_type, _ROW_FIELDS)
    if row == 0:
        return False
    flags = word(cursor, FLAGS)
    is_whole = (
        _fill(row, 0, new_bytes(word(cursor, KEY), word(cursor, KEY_LEN)))
        and _fill(row, 1, new_bytes(word(cursor, VALUE), word(cursor, VALUE_LEN)))
        and _fill(row, 2, new_unsigned(load_u64(cursor + 8 * SEQ)))
        and _fill(row, 3, new_signed(time_of(cursor, CREATED)) if flags & FLAG_CREATE_TS else hold(none))
        and _fill(row, 4, new_signed(time_of(cursor, TIMES)) if flags & FLAG_EXPIRE_TS else hold(none))
    )
    return _append(rows, row, is_whole)


@helper
def _append_pair(rows: int, cursor: int) -> bool:
    pair = new_tuple(2)
    if pair == 0:
        return False
    is_whole = _fill(pair, 0, new_bytes(word(cursor, KEY), word(cursor, KEY_LEN))) and _fill(
        pair, 1, new_bytes(word(cursor, VALUE), word(cursor, VALUE_LEN))
    )
    return _append(rows, pair, is_whole)


@inlined
def _fill(row: int, place: int, item: int) -> bool:
    if item == 0:
        return False
    fill(row, place, item)
    return True


@inlined
def _append(rows: int, row: int, is_whole: bool) -> bool:
    untrack(row)
    is_appended = is_whole and append(rows, row) == 0
    drop(row)
    return is_appended
