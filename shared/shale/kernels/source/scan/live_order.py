"""Kernel parts: the live sources of a merge by their rows, as numbers side by side."""

from shale.kernels.source.jit import helper
from shale.kernels.source.memory import set_word, word


@helper
def put_first(order: int, live: int, number: int) -> int:
    """Put a source before the others; return how many there are then."""
    for place in range(live, 0, -1):
        set_word(order, place, word(order, place - 1))
    set_word(order, 0, number)
    return live + 1


@helper
def drop_first(order: int, live: int) -> int:
    """Drop the first source, which has no more rows; return how many are left."""
    for place in range(live - 1):
        set_word(order, place, word(order, place + 1))
    return live - 1
