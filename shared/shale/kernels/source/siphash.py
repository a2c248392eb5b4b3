"""Kernel: SipHash-1-3 with the key (0, 0) over many keys (docs/reference/format.md 9.3).

The plain twin is ``shale.format.sst.siphash``.
"""

from typing import Any

import numpy as np

from shale.kernels.source.jit import helper, kernel
from shale.kernels.source.memory import load_i64, load_u8, load_u64, store_u64


@helper
def _rotate(word: Any, bits: Any) -> Any:
    return word << bits | word >> (np.uint64(64) - bits)


@helper
def _mix(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v2 += v3
    v1 = _rotate(v1, np.uint64(13)) ^ v0
    v3 = _rotate(v3, np.uint64(16)) ^ v2
    v0 = _rotate(v0, np.uint64(32))
    v2 += v1
    v0 += v3
    v1 = _rotate(v1, np.uint64(17)) ^ v2
    v3 = _rotate(v3, np.uint64(21)) ^ v0
    v2 = _rotate(v2, np.uint64(32))
    return v0, v1, v2, v3


@helper
def siphash13(address: int, size: int) -> Any:
    """The hash of ``size`` bytes."""
    v0 = np.uint64(0x736F6D6570736575)
    v1 = np.uint64(0x646F72616E646F6D)
    v2 = np.uint64(0x6C7967656E657261)
    v3 = np.uint64(0x7465646279746573)
    end = address + (size & ~7)
    at = address
    while at < end:
        word = load_u64(at)
        v0, v1, v2, v3 = _mix(v0, v1, v2, v3 ^ word)
        v0 ^= word
        at += 8
    word = np.uint64(size & 0xFF) << np.uint64(56)
    for number in range(size & 7):
        word |= np.uint64(load_u8(at + number)) << np.uint64(8 * number)
    v0, v1, v2, v3 = _mix(v0, v1, v2, v3 ^ word)
    v0 ^= word
    v2 ^= np.uint64(0xFF)
    for _ in range(3):
        v0, v1, v2, v3 = _mix(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@kernel("void(i64, i64, i64, i64)")
def hash_keys(key_bytes: int, key_offsets: int, count: int, hashes: int) -> None:
    for row in range(count):
        start = load_i64(key_offsets + 8 * row)
        end = load_i64(key_offsets + 8 * row + 8)
        store_u64(hashes + 8 * row, siphash13(key_bytes + start, end - start))
