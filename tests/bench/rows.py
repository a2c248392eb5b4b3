"""Rows for benchmarks: keys of 16 hexadecimal digits, values of random bytes."""

from functools import cache

import numpy as np

from shale.kernels.rows import Rows
from shale.types import FLAG_CREATE_TS

KEY_BYTES = 16
VALUE_BYTES = 100


@cache
def random_numbers(count: int) -> np.ndarray:
    """Return the numbers of uniformly random keys, ascending."""
    return np.sort(np.random.default_rng(15).integers(0, 1 << 64, count, dtype=np.uint64))


def bench_rows(numbers: np.ndarray, first_seq: int = 1, seed: int = 1, value_bytes: int = VALUE_BYTES) -> Rows:
    """One row per number, in the order given; the key is the number in hexadecimal."""
    count = len(numbers)
    return Rows(
        key_bytes=np.frombuffer(numbers.astype(">u8").tobytes().hex().encode(), np.uint8),
        key_offsets=np.arange(count + 1, dtype=np.int64) * KEY_BYTES,
        val_bytes=np.random.default_rng(seed).integers(0, 256, count * value_bytes, dtype=np.uint8),
        val_offsets=np.arange(count + 1, dtype=np.int64) * value_bytes,
        seq=np.arange(first_seq, first_seq + count, dtype=np.uint64),
        flags=np.full(count, FLAG_CREATE_TS, np.uint8),
        create_ts=np.full(count, 1_795_254_691_041, np.int64),
        expire_ts=np.zeros(count, np.int64),
    )
