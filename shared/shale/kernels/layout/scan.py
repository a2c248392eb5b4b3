"""What the kernel ``scan_cached`` is asked, what it answers, and the memory it works in.

A request is one ``bytes`` object: ``REQUEST_WORDS`` int64, then the trees, then the tables, then the first key of the
range and its end.  Sources are numbered in this order: tables, then the levels of the trees.  Precedence only matters
between rows of one key and one sequence number.  The tables of a tree are those of ``layout.point_lookup``.

Kernel signature::

    scan_cached(request: bytes, rows: list, row_type: type, none: None) -> answer

It appends rows in the order of the scan: objects of ``row_type``, a tuple of key, value, seq, and both times, or pairs.
The answer is a status, and for ``NEED_META`` and ``NEED_BLOCK`` what is missing: ``status | source << SOURCE_AT |
view << VIEW_AT | block << BLOCK_AT``.  Rows before it are complete, so the caller may go on after the last one.
Parts that other sources miss at the start are in the scratch memory, see ``MISSES_AT``.
"""

from shale.kernels.columns import SLACK
from shale.kernels.layout.cursor import CREATED, CURSOR_BYTES, SEQ

ROWS_MAX = 0
BYTES_MAX = 1
"""The kernel stops once keys and values have this many bytes; below 0: no limit."""
HAS_NOW = 2
NOW = 3
"""Rows that have expired by then are invisible, in milliseconds."""
AS_PAIRS = 4
"""1: tuples of key and value; 0: rows."""
TREES = 5
TABLES = 6
SST_MAX_SEQ = 7
"""Newer rows of SSTs are invisible; a uint64."""
START_LEN = 8
"""-1: the range has no start."""
END_LEN = 9
IS_REVERSED = 10
SCRATCH = 11
"""Address of ``SCRATCH_BYTES``."""
COUNTS = 12
"""Address of the counts of ``layout.point_lookup``, ``OUT_WORDS`` int64."""
WALK_MAX = 13
"""The kernel passes about so many versions of keys, hidden ones included."""
WINDOWS = 14
"""Address of a window for each level of the trees; 0: there are none."""
REQUEST_WORDS = 15

# A window: stored blocks of one SST that are not cached, with their checksums.
WINDOW_VIEW = 0
"""The number of the SST in its level."""
WINDOW_FIRST = 1
WINDOW_END = 2
"""The block after the last; 0: the window is empty."""
WINDOW_DATA = 3
"""Address of the first block."""
WINDOW_OFFSETS = 4
"""Address of the offsets of all blocks of the SST in its file, int64."""
WINDOW_WORDS = 5

TREE_WORDS = 2
TREE_TABLE = 0
"""Address of a level table."""
TREE_LEVELS = 1

TABLE_WORDS = 3
TABLE_COLUMNS = 0
"""Address of the addresses of columns (``shale.kernels.columns``), which are sorted."""
TABLE_ROWS = 1
TABLE_MAX_SEQ = 2
"""Newer rows are invisible; a uint64."""

END = 0
"""The range has no more rows."""
MORE = 1
"""The limit was reached."""
NEED_META = 2
NEED_BLOCK = 3
NEED_FOLD = 4
"""The next key has a merge operand."""
TOO_LARGE = 5
"""More sources, or a larger key or block, than the memory allows for."""
INVALID = 6
"""A block is malformed, or rows are out of order."""
WALKED = 7
"""There were too many versions to pass."""

MISSED = frozenset((NEED_META, NEED_BLOCK))
"""Answers for what is not in memory."""

# What a level answers besides the results of a cursor (``layout.cursor``).
LEVEL_NEEDS_META = 32
LEVEL_NEEDS_BLOCK = 33
LEVEL_TOO_LARGE = 34

SOURCE_AT = 8
VIEW_AT = 16
BLOCK_AT = 38
STATUS_MASK = (1 << SOURCE_AT) - 1
SOURCE_MASK = (1 << (VIEW_AT - SOURCE_AT)) - 1
VIEW_MASK = (1 << (BLOCK_AT - VIEW_AT)) - 1

SOURCES_MAX = 64
KEY_BYTES_MAX = 1 << 16
"""A block has at most this many bytes, and so has each of its keys."""

ROWS_OF_BLOCK_MAX = 1024
"""Only backward, where all rows of a block are kept at once;"""
KEYS_OF_BLOCK_MAX = 1 << 18
"""the bytes of their keys together."""

# A source, beside its cursor (``layout.cursor``).
VIEWS = 0
"""Address of the views of the level."""
VIEW_COUNT = 1
VIEW = 2
SLOT = 3
BLOCK = 4
FIRST_BLOCK = 5
"""The block of this view where the range begins."""
BOUNDS = 6
"""Where the open block begins and ends, relative to itself: two words."""
COLUMNS = 8
ROW_START = 9
"""The first row of a table in the range, and the end of them; backward the end of those not yet given."""
ROW_END = 10
KEY_BUFFER = 11
KEPT_ROWS = 12
"""Address of ``ROWS_OF_BLOCK_MAX`` kept rows."""
KEPT_KEYS = 13
LOWER = 14
"""Address of the first key of the range in the open view; 0: none."""
LOWER_LEN = 15
WINDOW = 16
"""Address of the window of the level; 0: there is none."""
SOURCE_WORDS = 17

# The range of the scan.
RANGE_START = 0
RANGE_START_LEN = 1
"""-1: no bound."""
RANGE_END = 2
RANGE_END_LEN = 3
RANGE_COUNTS = 4
RANGE_WORDS = 5

# A kept row: its key, then the words of a cursor from ``SEQ`` to ``CREATED``.
KEPT_KEY = 0
KEPT_KEY_LEN = 1
KEPT_SEQ = 2
KEPT_WORDS = KEPT_SEQ + CREATED + 1 - SEQ

# The scratch memory: what is left to do, the order of the sources, the key met last, and per source its cursor, its
# words, and buffers.
WALK_LEFT_AT = 0
"""After ``NEED_META`` and ``NEED_BLOCK``: what is left of ``WALK_MAX``,"""
BYTES_LEFT_AT = 8
"""and of ``BYTES_MAX``."""
MISSES_AT = 16
"""How many sources miss a part: at the start all that do, later the first one;"""
MISSES = 24
"""and the answer for each."""
ORDER_AT = MISSES + 8 * SOURCES_MAX
MET_AT = ORDER_AT + 8 * SOURCES_MAX
RANGE_AT = MET_AT + KEY_BYTES_MAX + SLACK
NEWEST_AT = RANGE_AT + 8 * RANGE_WORDS
"""A cursor that holds the newest visible version of the key met last, while older ones are passed."""
CURSORS_AT = NEWEST_AT + CURSOR_BYTES
SOURCES_AT = CURSORS_AT + SOURCES_MAX * CURSOR_BYTES
BUFFERS_AT = SOURCES_AT + SOURCES_MAX * 8 * SOURCE_WORDS
BASE_KEY_AT = KEY_BYTES_MAX + SLACK
KEPT_ROWS_AT = 2 * BASE_KEY_AT
KEPT_KEYS_AT = KEPT_ROWS_AT + ROWS_OF_BLOCK_MAX * 8 * KEPT_WORDS
BUFFER_BYTES = KEPT_KEYS_AT + KEYS_OF_BLOCK_MAX + SLACK
SCRATCH_BYTES = BUFFERS_AT + SOURCES_MAX * BUFFER_BYTES
"""Most of it is never touched, and takes no memory then."""
