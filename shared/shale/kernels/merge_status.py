"""Why a merge of stored blocks stops: a module that loads no kernels."""

from enum import IntEnum


class MergeStatus(IntEnum):
    """The codes of ``merge_blocks`` that are no error."""

    DONE = 0
    NEED_INPUT = 1
    """A source has used up its blocks: give it the next ones, or its end."""
    FULL = 2
    """The next row has another key, and ended blocks take more than the limit."""
    NEED_OUTPUT_SPACE = 3
    """The output is used up; go on with a larger or emptier one."""
    NEED_METADATA_SPACE = 4
    """The metadata of this call must be taken over: blocks, index keys, hashes."""
