"""Why a merge of stored blocks stops, for those who must not load the kernels to know it."""

from enum import IntEnum


class Step(IntEnum):
    """The codes of ``merge_blocks`` that are no error."""

    DONE = 0
    STARVED = 1
    """A source has used up its blocks: give it the next ones, or its end."""
    FULL = 2
    """The next row has another key, and ended blocks take more than the limit."""
    NEED_ROOM = 3
    """The output is used up; go on with a larger or emptier one."""
    NEED_NOTES = 4
    """What was noted in this call has to be taken away: blocks, index keys, hashes."""
