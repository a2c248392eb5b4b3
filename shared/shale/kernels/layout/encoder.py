"""Words that the block encoder's kernel shares with its callers: status, state and the table of blocks."""

DONE = 0
NEED_OUTPUT_SPACE = 1
OUT_OF_ORDER = 2
FULL = 3

# The words of the state.
AT = 0
"""Bytes of the output in use."""
BLOCK_START = 1
BLOCK_ROWS = 2
RESTARTS = 3
ROW = 4
"""The next row of the input."""
BLOCKS = 5
"""Blocks begun in this call."""
ENDED = 6
"""Blocks ended in this call."""
SEPARATORS_AT = 7
"""Bytes of separators written in this call."""
PUTS = 8
"""Of the open block, as the next two."""
DELETES = 9
MERGES = 10
NEED = 11
"""With ``NEED_OUTPUT_SPACE``: bytes that the open block and the next row take."""
LIMIT = 12
"""Stop before a new key once ended blocks take more than this many bytes of the output."""
STATE_WORDS = 13

# Words per block in the table of blocks.
BLOCK_END = 0
BLOCK_PUTS = 1
BLOCK_DELETES = 2
BLOCK_MERGES = 3
BLOCK_WORDS = 4

RESTART_INTERVAL = 16
BY_KEY = 0
"""Index keys are the shortest separators (compacted SSTs); rows must be in order."""
BY_SEQ = 1
"""Index keys are sequence numbers (WAL); keys are in any order."""


def restarts_max(target: int) -> int:
    """Restarts that fit into a block: 16 rows take at least 192 bytes."""
    return target // 192 + 2
