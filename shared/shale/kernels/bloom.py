"""Kernels: build and probe bloom filters (docs/reference/format.md 9.3).  The plain twin is
``shale.format.sst.bloom``.
"""

import numpy as np

from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled
from shale.kernels.rows import U8, U64


def add_bits(bits: U8, hashes: U64, probes: int) -> None:
    """Add hashes to the bits of a filter, which are not empty."""
    hashes = np.ascontiguousarray(hashes, np.uint64)
    compiled.add_bits(address_of(hashes), len(hashes), probes, address_of(bits), len(bits))
