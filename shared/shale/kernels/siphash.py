"""Kernel: SipHash-1-3 with the key (0, 0) over many keys (docs/reference/format.md 9.3).

The plain twin is ``shale.format.sst.siphash``.
"""

import numpy as np

from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled
from shale.kernels.rows import U64, Rows


def hash_keys(rows: Rows) -> U64:
    """The hash of every row's key, shape (n,)."""
    hashes = np.empty(len(rows), np.uint64)
    compiled.hash_keys(address_of(rows.key_bytes), address_of(rows.key_offsets), len(rows), address_of(hashes))
    return hashes
