"""Parts of kernels: cursors over stored blocks and over columns, side by side in one merge.

A cursor on columns has ``COLUMNS_VERSION`` in place of the version of blocks (``layout.merge_visible``).  Its key is
where the columns have it.
"""

from typing import Any

import numpy as np

from shale.kernels.columns import CREATE_TS, EXPIRE_TS, KEY_BYTES, KEY_OFFSETS, VAL_BYTES, VAL_OFFSETS
from shale.kernels.columns import FLAGS as FLAGS_COLUMN
from shale.kernels.columns import SEQ as SEQ_COLUMN
from shale.kernels.layout.cursor import (
    CREATED,
    DATA,
    FLAGS,
    HIGH,
    KEY,
    KEY_LEN,
    LOW,
    ROW,
    ROW_AT,
    ROWS_END,
    SEQ,
    TIMES,
    USED_UP,
    VALUE,
    VALUE_LEN,
    VERSION,
)
from shale.kernels.layout.merge_visible import COLUMNS_VERSION
from shale.kernels.source.block.cursor import next_row
from shale.kernels.source.compare import word_of
from shale.kernels.source.jit import helper, inlined
from shale.kernels.source.memory import load_i64, load_u8, load_u64, load_u64be, set_word, store_u64, word


@helper
def read_columns(cursor: int) -> int:
    """Go to the next row of a cursor on columns; return ``ROW`` or ``USED_UP``."""
    row = word(cursor, ROW_AT)
    if row >= word(cursor, ROWS_END):
        return USED_UP
    columns = word(cursor, DATA)
    place = word(columns, KEY_OFFSETS) + 8 * row
    start = load_i64(place)
    key, key_len = word(columns, KEY_BYTES) + start, load_i64(place + 8) - start
    set_word(cursor, KEY, key)
    set_word(cursor, KEY_LEN, key_len)
    store_u64(cursor + 8 * HIGH, word_of(key, key_len))
    store_u64(cursor + 8 * LOW, word_of(key + 8, key_len - 8) if key_len > 8 else np.uint64(0))
    place = word(columns, VAL_OFFSETS) + 8 * row
    start = load_i64(place)
    set_word(cursor, VALUE, word(columns, VAL_BYTES) + start)
    set_word(cursor, VALUE_LEN, load_i64(place + 8) - start)
    store_u64(cursor + 8 * SEQ, load_u64(word(columns, SEQ_COLUMN) + 8 * row))
    set_word(cursor, FLAGS, load_u8(word(columns, FLAGS_COLUMN) + row))
    set_word(cursor, TIMES, word(columns, EXPIRE_TS) + 8 * row)
    set_word(cursor, CREATED, word(columns, CREATE_TS) + 8 * row)
    set_word(cursor, ROW_AT, row + 1)
    return ROW


@inlined
def next_of(cursor: int, has_slack: bool) -> int:
    """Go to the next row of stored blocks or of columns; see ``next_row``."""
    return read_columns(cursor) if word(cursor, VERSION) == COLUMNS_VERSION else next_row(cursor, has_slack)


@inlined
def time_of(cursor: int, which: int) -> Any:
    """Return a time of the row: native in columns, big-endian in blocks."""
    place = word(cursor, which)
    return load_i64(place) if word(cursor, VERSION) == COLUMNS_VERSION else np.int64(load_u64be(place))
