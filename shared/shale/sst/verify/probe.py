"""Probes of a filter for many rows at once."""

import numpy as np

from shale.format.sst.bloom import BloomFilter
from shale.kernels.rows import U64


def first_missing(bloom: BloomFilter, hashes: U64) -> int | None:
    """Return the first hash that the filter denies; ``None`` if it admits all."""
    if not len(hashes):
        return None
    if not bloom.num_bits:
        return 0
    modulus = np.uint64(bloom.num_bits)
    bits = bloom.bits
    positions = (hashes & np.uint64(0xFFFFFFFF)) % modulus
    deltas = (hashes >> np.uint64(32)) % modulus
    found = np.ones(len(hashes), np.bool_)
    for probe in range(bloom.num_probes):
        deltas = (deltas + np.uint64(probe)) % modulus
        found &= bits[positions >> np.uint64(3)] >> (positions & np.uint64(7)).astype(np.uint8) & 1 != 0
        positions = (positions + deltas) % modulus
    return None if found.all() else int(np.argmin(found))
