"""The tables that the point-lookup kernel reads: int64 words that hold addresses and lengths.

``shale.sst`` builds them and keeps every buffer alive; ``shale.kernels.lookup`` walks them.  Both run on the thread
of the event loop, so nothing moves while a kernel looks.  Three tables:

- *level table*, ``(n, LEVEL_WORDS)``: one row per L0 or sorted run, in order of precedence: where its views begin
  and how many there are.  An L0 is a level of one view.
- *view records*, ``(n, VIEW_WORDS)``: per view the address of its slot and the keys it can show.  The views of a
  level ascend; neighbours may share one key, then the left one holds its newer versions.
- *slot*, ``SLOT_WORDS``: one physical SST.  ``SLOT_BLOCKS`` of 0 means that its metadata is not in memory.  The block
  table has ``(n_blocks, 2)`` words: address of the decoded image of the block (0: not in memory) and its length.  Its
  own address is 0 as long as no block is in memory.

The separators of the index are one arena of bytes with ``n_blocks + 1`` int64 offsets (docs/format.md 10).  A kernel
that uses a block sets its byte in the touched table, from which eviction learns what is hot.

Kernel signatures (``status`` is one of the constants below)::

    lookup(key: bytes, max_seq: u64, level_table: address, n_levels, out: address of OUT_WORDS int64) -> status
    lookup_many(keys: address, key_offsets: address of i64 (n + 1), n, max_seq, level_table, n_levels,
                out: address of i64 (n, OUT_WORDS), statuses: address of i64 (n,)) -> None

    lookup_value(key: bytes, record: address of RECORD_WORDS int64) -> status, or how long the value is (``VALUE``)
    gather_values(records: address of i64 (n, OUT_WORDS), offsets: address of i64 (n + 1), n, into: address) -> None

``lookup`` and ``lookup_many`` return the first row of the key with ``seq <= max_seq`` in level order.  If a slot or a
block on the way is not in memory they stop and say which one, since a lower level must not answer for a higher one.
"""

LEVEL_WORDS = 2
LEVEL_VIEWS = 0
"""Address of the first view record."""
LEVEL_COUNT = 1

VIEW_WORDS = 8
VIEW_SLOT = 0
VIEW_START = 1
"""Address of the first key the view can show."""
VIEW_START_LEN = 2
"""-1: unbounded."""
VIEW_START_EXCLUDED = 3
VIEW_END = 4
VIEW_END_LEN = 5
"""-1: unbounded."""
VIEW_END_INCLUDED = 6

SLOT_WORDS = 16
SLOT_BLOCKS = 0
SLOT_VERSION = 1
"""Block format, 1 or 2."""
SLOT_BLOOM = 2
"""Address of the bits of a filter over whole keys; 0: none."""
SLOT_BLOOM_LEN = 3
SLOT_BLOOM_PROBES = 4
SLOT_INDEX = 5
SLOT_INDEX_OFFSETS = 6
SLOT_BLOCK_TABLE = 7
SLOT_TOUCHED = 8
"""Address of one byte per block."""

OUT_WORDS = 16
OUT_LEVEL = 0
OUT_VIEW = 1
"""Position within the level."""
OUT_BLOCK = 2
OUT_VALUE = 3
"""Where the value begins in the image of the block."""
OUT_VALUE_LEN = 4
OUT_SEQ = 5
OUT_FLAGS = 6
OUT_CREATE_TS = 7
OUT_EXPIRE_TS = 8
OUT_FILTER_NEGATIVES = 9
"""The kernel adds to this word and the next four, unless a lookup has to be repeated; whoever owns them reads them."""
OUT_FILTER_POSITIVES = 10
OUT_FILTER_FALSE_POSITIVES = 11
OUT_SSTS = 12
"""SSTs whose metadata was used."""
OUT_BLOCKS = 13
"""Blocks that were used."""
OUT_COUNTS = (OUT_FILTER_NEGATIVES, OUT_BLOCKS + 1)
"""The words with counts, ``[first, end)``."""
OUT_IMAGE = 14
"""Address of the decoded block."""

RECORD_WORDS = 6
"""What a lookup of values takes besides the key, so that a call passes two numbers."""
RECORD_TABLE = 0
RECORD_LEVELS = 1
RECORD_MAX_SEQ = 2
RECORD_OUT = 3
RECORD_INTO = 4
"""Address of a buffer that takes a copy of the value."""
RECORD_INTO_SIZE = 5

VALUE = 8
"""Set in what ``lookup_value`` returns when it has copied a value, whose size the bits from ``VALUE_SHIFT`` on say.
A deleted key is ``ABSENT``; ``FOUND`` is an operand, or a value that has no room: ask ``lookup``."""
VALUE_SHIFT = 4

ABSENT = 0
FOUND = 1
NEED_META = 2
NEED_BLOCK = 3
CORRUPT = 4
"""A block has an impossible row; level, view and block say where."""
