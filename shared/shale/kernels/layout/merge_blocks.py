"""Status codes, state and output of the merge of stored blocks, which its kernel shares with its callers."""

from shale.kernels.merge_status import MergeStatus

DONE = MergeStatus.DONE.value
NEED_INPUT = MergeStatus.NEED_INPUT.value
"""Of ``state[SOURCE]``; it may also be taken out of the order."""
FULL = MergeStatus.FULL.value
NEED_OUTPUT_SPACE = MergeStatus.NEED_OUTPUT_SPACE.value
NEED_METADATA_SPACE = MergeStatus.NEED_METADATA_SPACE.value
"""``state[LONGEST]`` is the length of the next key."""
NEED_TOMBSTONE_SPACE = 5
"""The tombstones of one key exceed their buffer."""
OUT_OF_ORDER = 6
"""The row of ``state[SOURCE]`` is not above the row before it."""
BAD_BLOCK = 16
"""Added to what is wrong with the blocks of ``state[SOURCE]``; see ``layout.decoder``."""

# The words of the state.
LIVE = 0
"""Sources in the order."""
SOURCE = 1
HAS_MET = 2
MET = 3
"""Address of the current key: the last one met, written or not."""
MET_LEN = 4
LAST_SEQ = 5
SKIPPING = 6
"""1: skip older versions of the current key."""
WRITTEN = 7
"""Address of the key of the row written last."""
WRITTEN_LEN = 8
"""-1: none is written in this file."""
KEY_ONE = 9
"""Addresses of two buffers for keys; each holds every key, and slack."""
KEY_TWO = 10
PENDING_TOMBSTONES = 11
"""Address of tombstones of the current key that may still be dropped, ``PENDING_TOMBSTONE_BYTES`` each."""
PENDING_TOMBSTONES_AT = 12
PENDING_TOMBSTONES_COUNT = 13
PENDING_TOMBSTONES_MAX = 14
ROWS = 15
"""Rows written since the state was reset, as the next two."""
KEYS_LEN = 16
VALUES_LEN = 17
NOTED = 18
"""Hashes written in this call."""
LONGEST = 19
WRITTEN_SEQ = 20
FIRST_KEY = 21
"""Address of a buffer for the key of the first row written."""
FIRST_LEN = 22
EXPIRED_VALUES = 23
"""Values that became tombstones so far."""
EXPIRED_OPERANDS = 24
"""Operands that were dropped so far."""
STATE_WORDS = 25

# A pending tombstone.
PENDING_SEQ = 0
PENDING_FLAGS = 8
PENDING_EXPIRE_TS = 16
PENDING_CREATE_TS = 24
PENDING_TOMBSTONE_BYTES = 32

# The words of the output.
OUT = 0
OUT_MAX = 1
RESTARTS = 2
"""See ``encode_blocks`` for this and the next two."""
TARGET = 3
HAS_CHECKSUMS = 4
SEPARATORS = 5
SEPARATORS_MAX = 6
SEPARATOR_ENDS = 7
TABLE = 8
BLOCKS_MAX = 9
"""Room for blocks that begin in one call, one less than ``TABLE`` has."""
HASHES = 10
"""Address of uint64 (HASHES_MAX): hashes of keys; 0: none are wanted."""
HASHES_MAX = 11
SINK_WORDS = 12
