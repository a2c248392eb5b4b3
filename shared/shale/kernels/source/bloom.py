"""Kernels: build and probe bloom filters (docs/reference/format.md 9.3).  The plain twin is
``shale.format.sst.bloom``.
"""

from typing import Any

import numpy as np

from shale.kernels.source.jit import helper, kernel
from shale.kernels.source.memory import load_u8, load_u64, store_u8


@helper
def may_contain(bits: int, size: int, probes: int, hash64: Any) -> bool:
    """Whether something with this hash may have been added to the ``size`` bytes at ``bits``."""
    modulus = np.uint64(8 * size)
    if modulus == np.uint64(0):
        return False
    position = (hash64 & np.uint64(0xFFFFFFFF)) % modulus
    delta = (hash64 >> np.uint64(32)) % modulus
    # Sums stay below twice the modulus (when it exceeds the number of probes), so one subtraction replaces a division.
    for probe in range(probes):
        delta += np.uint64(probe)
        if delta >= modulus:
            delta %= modulus
        byte = load_u8(bits + np.int64(position >> np.uint64(3)))
        if not byte >> np.int64(position & np.uint64(7)) & 1:
            return False
        position += delta
        if position >= modulus:
            position -= modulus
    return True


@kernel("void(i64, i64, i64, i64, i64)")
def add_bits(hashes: int, count: int, probes: int, bits: int, size: int) -> None:
    modulus = np.uint64(8 * size)
    for number in range(count):  # divisions are avoided as above
        hash64 = load_u64(hashes + 8 * number)
        position = (hash64 & np.uint64(0xFFFFFFFF)) % modulus
        delta = (hash64 >> np.uint64(32)) % modulus
        for probe in range(probes):
            delta += np.uint64(probe)
            if delta >= modulus:
                delta %= modulus
            at = bits + np.int64(position >> np.uint64(3))
            store_u8(at, load_u8(at) | 1 << np.int64(position & np.uint64(7)))
            position += delta
            if position >= modulus:
                position -= modulus
