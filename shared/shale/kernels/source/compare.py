"""Kernel parts: how keys compare."""

from typing import Any

import numpy as np

from shale.kernels.source.jit import helper, inlined
from shale.kernels.source.memory import load_u8, load_u64be


@inlined
def word_of(key: int, size: int) -> Any:
    """The first eight bytes, or fewer and zeros, as a number that compares like them."""
    if size >= 8:
        return load_u64be(key)
    word = np.uint64(0)
    for number in range(size):
        word |= np.uint64(load_u8(key + number)) << np.uint64(56 - 8 * number)
    return word


@helper
def compare_bytes(left: int, left_len: int, right: int, right_len: int) -> int:
    """Negative, zero or positive, as byte strings compare."""
    most = min(left_len, right_len)
    at = 0
    while most - at >= 8:
        one, other = load_u64be(left + at), load_u64be(right + at)
        if one != other:
            return -1 if one < other else 1
        at += 8
    while at < most:
        difference = load_u8(left + at) - load_u8(right + at)
        if difference != 0:
            return difference
        at += 1
    return left_len - right_len
