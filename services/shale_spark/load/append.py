"""Appending of one task's rows through a writer daemon.  Not atomic: batches of a write that fails stay written."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shale.env import Env
from shale_spark.load.batch_sender import BatchSender, Op
from shale_spark.load.batches import select_stored_columns
from shale_spark.load.rows import valid_rows
from shale_spark.load.rules import EXPIRE_MS, LIFETIME_MAX_MS
from shale_spark.load.write_options import AppendRequest


async def append_rows(batches: Iterable[pa.RecordBatch], request: AppendRequest, sender: BatchSender, env: Env) -> int:
    """Send all rows, in order; return their number.

    Raises:
        InvalidRequestError: a row that no database can hold, which is named; those before it may have been sent.
        UnavailableError: the writer took no more.
    """
    sent = 0
    rest = iter(batches)
    while (batch := await env.cpu.run(partial(next, rest, None))) is not None:
        for ops in operations(batch, request, now_ms=env.clock.now_ms()):
            await sender.send(ops)
            sent += len(ops)
    return sent


def operations(batch: pa.RecordBatch, request: AppendRequest, *, now_ms: int) -> Iterator[list[Op]]:
    """Yield the puts of a batch, in pieces of at most ``batch_rows`` and ``batch_bytes``, or of one row."""
    if not batch.num_rows:
        return
    batch = select_stored_columns(batch, request.columns, has_codec=request.codec is not None)
    keys, values = valid_rows(batch, request.codec)
    lifetimes = _lifetimes(batch, request.ttl_ms, now_ms)
    ends = np.cumsum((pc.binary_length(keys).to_numpy() + pc.binary_length(values).to_numpy()).astype(np.int64))
    start = 0
    while start < len(batch):
        before = int(ends[start - 1]) if start else 0
        full = int(np.searchsorted(ends, before + request.batch_bytes, "right"))
        end = min(max(full, start + 1), start + request.batch_rows, len(batch))
        yield _puts(keys[start:end], values[start:end], None if lifetimes is None else lifetimes[start:end])
        start = end


def _puts(keys: Any, values: Any, lifetimes: Any) -> list[Op]:
    pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
    if lifetimes is None:
        return [("put", key, value) for key, value in pairs]
    return [
        ("put", key, value) if ttl_ms is None else ("put", key, value, ttl_ms)
        for (key, value), ttl_ms in zip(pairs, lifetimes.to_pylist(), strict=True)
    ]


def _lifetimes(batch: pa.RecordBatch, ttl_ms: int | None, now_ms: int) -> Any:
    """Return lifetimes in milliseconds, null for rows that never expire; ``None`` if no row does."""
    if EXPIRE_MS not in batch.schema.names:
        return None if ttl_ms is None else pa.array(np.full(len(batch), ttl_ms, np.int64))
    ends = pc.max_element_wise(batch.column(EXPIRE_MS), now_ms, skip_nulls=False)
    left = pc.min_element_wise(pc.subtract(ends, now_ms), LIFETIME_MAX_MS, skip_nulls=False)
    return left if ttl_ms is None else pc.fill_null(left, ttl_ms)
