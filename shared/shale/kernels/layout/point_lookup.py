"""The tables that the point-lookup kernel reads: int64 words that hold addresses and lengths.

``shale.sst`` builds them and keeps every buffer alive; ``lookup`` walks them.  Both run on
the thread of the event loop, so nothing moves while a kernel reads.  Three tables:

- *level table*, ``(n, LEVEL_WORDS)``: one row per L0 or sorted run, in order of precedence: where its views begin
  and how many there are.  An L0 is a level of one view.
- *view records*, ``(n, VIEW_WORDS)``: per view the address of its slot and the keys it can show.  The views of a
  level ascend; neighbours may share one key, then the left one holds its newer versions.
- *slot*, ``SLOT_WORDS``: one physical SST.  ``SLOT_BLOCKS`` of 0 means that its metadata is not in memory.  The block
  table has ``(n_blocks, 2)`` words: address of the decoded image of the block (0: not in memory) and its length.  Its
  own address is 0 as long as no block is in memory.

The separators of the index are one arena of bytes with ``n_blocks + 1`` int64 offsets (docs/reference/format.md 10).
A kernel
that uses a block sets its byte in the touched table, from which eviction learns what is hot.

Kernel signatures (``status`` is one of the constants below; what is a ``list`` or ``bytes`` is one of Python's)::

    lookup(key: bytes, max_seq: u64, level_table: address, n_levels, out: address of OUT_WORDS int64) -> status
    lookup_value(key: bytes, record: address of RECORD_WORDS int64) -> the value, None, or status
    open_image(stored: address, size) -> the decoded block, or ``CORRUPT``
    put_image(image: bytes, block table: address, block)
    open_images(images: list, n, stored: address, bounds: address of i64 (n, 2)) -> how many blocks are intact
    lookup_many(keys: list of bytes, answers: list, n, max_seq, level_table, n_levels,
                lanes: address of i64 (LANES, OUT_WORDS), counts: address of OUT_WORDS int64,
                missing: address of i64 (n,) or 0) -> how many are undecided

All find the first row of a key with ``seq <= max_seq`` in level order.  If a slot or a block on the way is not in
memory they stop and say which one, since a lower level must not answer for a higher one.  ``lookup_value`` answers
``None`` for a key without a row and for a deleted one, and ``FOUND`` for an operand: ask ``lookup``.
``lookup_many`` replaces answers by the same; what it replaces by a status is undecided.  If a part is
missing, ``missing`` gets the place where the search stopped, as one number that ascends along the search.
"""

LEVEL_WORDS = 2
LEVEL_VIEWS = 0
"""Address of the first view record."""
LEVEL_COUNT = 1

VIEW_WORDS = 5
VIEW_SLOT = 0
VIEW_START = 1
"""Address of the first key the view can show."""
VIEW_START_LEN = 2
"""-1: unbounded."""
VIEW_END = 3
"""Address of the first key after them."""
VIEW_END_LEN = 4
"""-1: unbounded."""

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

OUT_WORDS = 24
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
"""The kernel adds to this word and the next four, unless a lookup has to be repeated; the owner reads them."""
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

OUT_STOP = 15
"""Where a search is: the end of the views of the level that can show the key,"""
OUT_SLOT = 16
"""the SST,"""
OUT_LAST = 17
"""the end of its blocks that can hold the key,"""
OUT_AT = 18
"""the address of a row in the block that is not after the key."""
OUT_KEY = 19
"""For one of many keys: its address,"""
OUT_KEY_LEN = 20
OUT_HASH = 21
OUT_STATUS = 22

LANES = 32
"""Keys that are searched side by side, so that their memory accesses overlap."""

RECORD_WORDS = 4
"""The arguments of a lookup of values besides the key, so that a call passes two numbers."""
RECORD_TABLE = 0
RECORD_LEVELS = 1
RECORD_MAX_SEQ = 2
RECORD_OUT = 3

PLACE_BLOCK_BITS = 26
PLACE_VIEW_BITS = 22
"""Of the number of a place: block + 1 (0: the metadata), view and level, from the lowest bits on."""

ABSENT = 0
FOUND = 1
NEED_META = 2
NEED_BLOCK = 3
CORRUPT = 4
"""A block has an invalid row; level, view and block say where."""
