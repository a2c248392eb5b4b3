"""Status codes and state of the merge of visible rows, which its kernel shares with its callers."""

from shale.kernels.merge_status import MergeStatus

DONE = MergeStatus.DONE.value
NEED_INPUT = MergeStatus.NEED_INPUT.value
"""Of ``state[SOURCE]``; it may also be taken out of the order."""
FULL = MergeStatus.FULL.value
"""The next row does not fit the output."""
BAD_BLOCK = 16
"""Added to what is wrong with the blocks of ``state[SOURCE]``; see ``layout.decoder``."""

COLUMNS_VERSION = 0
"""Of a cursor on columns, in place of the version of blocks: ``DATA`` is the address of the table of columns,
``ROW_AT`` the next row, ``ROWS_END`` their number, and ``DATA_END`` the end of the values."""
MAX_SEQ_HERE = 31
"""A word of a cursor after those of ``layout.cursor``: rows of this source above it are invisible."""

# The words of the state.
LIVE = 0
"""Sources in the order."""
SOURCE = 1
ROWS = 2
"""Rows in the output, and where the next key and the next value go."""
KEYS_AT = 3
VALUES_AT = 4
HAS_MET = 5
MET = 6
"""Address of a buffer with the current key if it is longer than 16 bytes; it holds every key, and slack."""
MET_LEN = 7
MET_HIGH = 8
"""The current key's first eight bytes, and the next eight; see ``layout.cursor``."""
MET_LOW = 9
LAST_SEQ = 10
SKIPPING = 11
"""1: skip older versions of the current key."""
MAX_SEQ = 12
"""As in ``merge_filter``, as the next two."""
HAS_NOW = 13
NOW = 14
STATE_WORDS = 15
