"""The words of a cursor over stored blocks, which kernels share with their callers."""

ROW = 0
"""There is a row."""
USED_UP = 1
"""No more rows in these blocks, or none in the range.  Other results are those of ``layout.decoder``."""
OUT_OF_ORDER = 7
"""A row in the range follows one that is above it."""

# The words of a cursor.
DATA = 0
"""Address of the first block."""
DATA_END = 1
BOUNDS = 2
"""Address of i64 (blocks + 1), ascending; relative to the first."""
BLOCKS = 3
BLOCK = 4
"""The open block; -1 before the first."""
VERSION = 5
HAS_CHECKSUMS = 6
ROW_AT = 7
"""Address of the next row."""
ROWS_END = 8
KEY = 9
"""Address of a buffer that holds a key as long as the longest block, and slack."""
KEY_LEN = 10
HIGH = 11
"""The first eight bytes of the key, as a number; padded with zeros."""
LOW = 12
"""The next eight."""
BASE_KEY = 13
"""What keys share: in version 1 a second buffer, in version 2 the key before, which is ``KEY`` itself."""
BASE_LEN = 14
SEQ = 15
FLAGS = 16
VALUE = 17
"""Address of the value; in version 2 the rest of the row as it is written follows."""
VALUE_LEN = 18
TAIL_LEN = 19
"""Bytes of value, sequence number, flags and times where they lie in the order of version 2; else 0."""
TIMES = 20
"""Address of the expiry if there is one; of the creation time, if there is one, in ``CREATED``."""
CREATED = 21
START = 22
"""Address of the smallest key of the range; 0: any, and after a row has reached it."""
START_LEN = 23
END = 24
"""Address of the first key after the range; 0: none."""
END_LEN = 25
IS_PAST_END = 26
BLOCK_ROWS = 27
"""In version 1: whether the open block has given its first key."""
END_HIGH = 28
"""The first eight bytes of ``END``, as those of keys, and the next eight."""
END_LOW = 29
AHEAD = 30
"""Bytes of the open block: rows of the next one are about so far from those that are read."""
CURSOR_WORDS = 32
CURSOR_BYTES = 8 * CURSOR_WORDS
