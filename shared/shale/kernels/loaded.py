"""Loads every kernel; see ``choice`` for who needs them when."""

import numba

from shale.kernels import (
    block_decode,
    block_encode,
    bloom,
    flat,
    fuse,
    lookup,
    lookup_many,
    merge_blocks,
    merge_visible,
    objects,
    siphash,
    sort,
)

HAS_JIT = not numba.config.DISABLE_JIT
"""Without a JIT compiler kernels cannot work on addresses: the plain twins serve."""
KERNELS = (
    block_decode,
    block_encode,
    bloom,
    flat,
    fuse,
    lookup,
    lookup_many,
    merge_blocks,
    merge_visible,
    objects,
    siphash,
    sort,
)
