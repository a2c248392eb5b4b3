"""Status codes, rules and state of the merge of columns, which its kernel shares with its callers."""

import numpy as np

from shale.kernels.columns import (
    COLUMNS,
)
from shale.kernels.merge_rules import MergeRules
from shale.kernels.rows import I64
from shale.types import U64_MAX

DONE = 0
NEED_INPUT = 1
"""``state[SOURCE]`` has no rows left: set its next chunk, or remove it from the order."""
FULL = 2
"""The next row does not fit the output; rows before ``state[FINAL_ROWS]`` are final."""

# The words of the state.
LIVE = 0
"""Sources in the order."""
SOURCE = 1
ROWS = 2
"""Rows in the output."""
FINAL_ROWS = 3
"""Rows in the output that are final; tombstones that may still be dropped follow them."""
KEYS_AT = 4
VALUES_AT = 5
HAS_KEY = 6
KEY = 7
"""Address of the current key: the last one met, kept or not."""
KEY_LEN = 8
LAST_SEQ = 9
SKIPPING = 10
"""1: skip older versions of the current key."""
EXPIRED_VALUES = 11
"""Values that became tombstones so far."""
EXPIRED_OPERANDS = 12
"""Operands that were dropped so far."""
STATE_WORDS = 13

# The words of the rules.
NEWEST_ONLY = 0
MAX_SEQ = 1
HAS_MIN_SEQ = 2
MIN_SEQ = 3
HAS_NOW = 4
NOW = 5
DROP_TOMBSTONES = 6
RULE_WORDS = 7


def encode_rules(rules: MergeRules) -> I64:
    """The words of ``rules``, as above."""

    def signed(number: int) -> int:
        return number - 2**64 if number >= 2**63 else number

    words = np.zeros(RULE_WORDS, np.int64)
    words[NEWEST_ONLY] = rules.newest_only
    words[MAX_SEQ] = signed(U64_MAX if rules.max_seq is None else rules.max_seq)
    words[HAS_MIN_SEQ] = rules.min_seq is not None
    words[MIN_SEQ] = signed(rules.min_seq or 0)
    words[HAS_NOW] = rules.now_tick is not None
    words[NOW] = rules.now_tick or 0
    words[DROP_TOMBSTONES] = rules.drop_tombstones
    return words


# The words of a source, after the addresses of its columns.
AT = COLUMNS
"""Its next row."""
COUNT = COLUMNS + 1
HEAD = COLUMNS + 2
"""Address of the key of the next row."""
HEAD_LEN = COLUMNS + 3
HEAD_HIGH = COLUMNS + 4
"""The first eight bytes of that key, as a number; padded with zeros."""
HEAD_LOW = COLUMNS + 5
"""The next eight."""
SOURCE_WORDS = COLUMNS + 6
SOURCE_BYTES = 8 * SOURCE_WORDS
