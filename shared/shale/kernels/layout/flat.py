"""Sizes that the kernels of FlatBuffers share with their callers."""

REFUSED = -1
"""What a kernel returns for a buffer that the plain reader must explain."""
ENTRY_SIZE = 16
"""A ``BlockMeta`` with both fields: back reference 4, first_key 4, offset 8."""
VTABLE_SIZE = 8
ENTRY_SIZE_MAX = 4 + 3 + 4 + ENTRY_SIZE
"""What an entry of the index takes beside its key: length, two kinds of padding, the table."""
VTABLES_SIZE = 2 * VTABLE_SIZE
STATS_SIZE_MAX = 12
"""What the stats of a block take: back reference 4, padding 2, three fields."""
STATS_VTABLES = 16
"""One per set of fields and phase of a word, though phases are even: places for others stay empty."""
STATS_VTABLES_SIZE = 10 * STATS_VTABLES
