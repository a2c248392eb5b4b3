"""Rows for benchmarks: 16-byte keys, values of random bytes."""

import numpy as np

from shale.kernels.rows import Rows
from shale.types import FLAG_CREATE_TS

KEY_BYTES = 16
VALUE_BYTES = 100


def bench_rows(numbers: np.ndarray, first_seq: int = 1, seed: int = 1, value_bytes: int = VALUE_BYTES) -> Rows:
    """One row per number, in the order given; the key is ``key-`` and twelve digits."""
    count = len(numbers)
    digits = numbers[:, None] // 10 ** np.arange(11, -1, -1) % 10 + ord("0")
    prefix = np.broadcast_to(np.frombuffer(b"key-", np.uint8), (count, 4))
    keys = np.concatenate([prefix, digits.astype(np.uint8)], axis=1).reshape(-1)
    return Rows(
        key_bytes=keys,
        key_offsets=np.arange(count + 1, dtype=np.int64) * KEY_BYTES,
        val_bytes=np.random.default_rng(seed).integers(0, 256, count * value_bytes, dtype=np.uint8),
        val_offsets=np.arange(count + 1, dtype=np.int64) * value_bytes,
        seq=np.arange(first_seq, first_seq + count, dtype=np.uint64),
        flags=np.full(count, FLAG_CREATE_TS, np.uint8),
        create_ts=np.full(count, 1_795_254_691_041, np.int64),
        expire_ts=np.zeros(count, np.int64),
    )
