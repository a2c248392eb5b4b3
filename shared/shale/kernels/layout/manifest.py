"""Records and state that the kernel of manifests shares with its caller (``shale.format.manifest_image``)."""

(
    VIEW_HIGH,
    VIEW_LOW,
    SST_HIGH,
    SST_LOW,
    INDEX_OFFSET,
    INDEX_LEN,
    FILTER_OFFSET,
    FILTER_LEN,
    COMPRESSION,
    SST_TYPE,
    STATS_OFFSET,
    STATS_LEN,
    FILTER_FORMAT,
    FORMAT_VERSION,
    FIRST_LEN,
    LAST_LEN,
    KEYS,
) = range(17)
"""Words of a view and its SST.  The lengths of the first and the last key are -1 for none; both begin at ``KEYS``."""
VIEW_WORDS = 17

TREE_PREFIX_LEN, TREE_L0, TREE_HAS_WATERMARK, TREE_HIGH, TREE_LOW, TREE_RUNS = range(6)
"""Words of a tree: length of its prefix, number of L0s, watermark, number of runs."""
TREE_WORDS = 6
RUN_ID, RUN_VIEWS = range(2)
RUN_WORDS = 2
"""Words of each run, after those of its tree."""

PLACE, END, OBJECT_END, VTABLE_COUNT, SCRATCH, ALIGNMENT = range(6)
"""State: bytes written, address of the buffer's end, bytes before the open table, known vtables, address of places, and
the largest alignment of what was written."""
SLOTS = 8
SLOTS_MAX = 11
"""Places of the fields of the open table."""
VTABLES = SLOTS + SLOTS_MAX
VTABLES_MAX = 64
"""Places of known vtables."""
STATE_WORDS = VTABLES + VTABLES_MAX

OUT_SSTS, OUT_L0, OUT_WATERMARK, OUT_RUNS, OUT_SEGMENTS = range(5)
OUT_WORDS = 5

VIEW_BYTES_MAX = 256
"""What an SST and its view take beside the two keys."""
RUN_BYTES_MAX = 48
TREE_BYTES_MAX = 128
"""What a tree takes beside its prefix."""
VTABLES_BYTES_MAX = VTABLES_MAX * (4 + 2 * SLOTS_MAX)
