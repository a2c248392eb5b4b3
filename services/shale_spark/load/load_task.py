"""One task of a load: a partition of sorted rows becomes SSTs in the store, and one row about them."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import anyio
import msgpack
import pyarrow as pa

from shale.concurrency.first_error import first_error
from shale.env import Env
from shale.errors import ShaleError
from shale.format.manifest import decode_manifest, encode_manifest
from shale.kernels.rows import Rows
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Manifest, RunId, SortedRun, Sst, SstView, Tree
from shale_compactor.execution.run_writer import OutputOptions, RunWriter
from shale_spark.errors import encode_error
from shale_spark.load.rows import RowStream
from shale_spark.load.rules import LoadTaskPlan, LoadTaskResult
from shale_spark.tasks import run_async


async def write_load_task(
    batches: Iterable[pa.RecordBatch], plan: LoadTaskPlan, store: ObjectStore, env: Env
) -> LoadTaskResult:
    """Write the rows of one task.

    Args:
        batches: the columns of ``rules``, in key order; iterated in a thread.
        plan: the same for all tasks of a load.
        store: takes the SSTs.
        env: clock, randomness and ids.

    Raises:
        InvalidRequestError: a row is invalid; SSTs that are already uploaded stay unreferenced.
        UnavailableError: the store gave up.
    """
    stream = RowStream(plan.rules)
    ssts: list[Sst] = []
    rows = raw_bytes = 0
    writer: RunWriter | None = None
    try:
        async with anyio.create_task_group() as tasks:
            writer = RunWriter(
                store,
                plan.where.root,
                env,
                tasks,
                options=OutputOptions(
                    sst=plan.sst,
                    max_sst_size_bytes=plan.sst_bytes,
                    not_before_ms=plan.rules.stamp.not_before_ms,
                ),
                on_sst=ssts.append,
            )
            rest = iter(batches)
            while (chunk := await env.cpu.run(partial(_next, rest, stream))) is not None:
                rows += len(chunk)
                raw_bytes += chunk.size_bytes
                await writer.add(chunk)
            await writer.close()
    except BaseExceptionGroup as group:
        raise first_error(group) from group
    finally:
        if writer is not None:
            writer.abandon()
    return LoadTaskResult(
        ssts=tuple(ssts), rows=rows, repeated=stream.repeated, expired=stream.expired, raw_bytes=raw_bytes
    )


def _next(batches: Iterator[pa.RecordBatch], stream: RowStream) -> Rows | None:
    batch = next(batches, None)
    return None if batch is None else stream.take(batch)


async def run_load_task(batches: Iterable[pa.RecordBatch], plan: LoadTaskPlan, env: Env) -> LoadTaskResult:
    """Write the rows of one task into the plan's store; see ``write_load_task``."""
    stores = plan.where.connect(env, Metrics(), component="pipeline")
    try:
        return await write_load_task(batches, plan, stores.main, env)
    finally:
        await stores.aclose()


def encode_result(part: LoadTaskResult) -> bytes:
    """Encode the result of a task; SSTs are encoded as in a manifest."""
    run = SortedRun(id=RunId(0), ssts=tuple(map(SstView.identity, part.ssts)))
    return msgpack.packb(  # type: ignore[no-any-return]
        {
            "ssts": encode_manifest(Manifest(tree=Tree(compacted=(run,) if part.ssts else ()))),
            "rows": part.rows,
            "repeated": part.repeated,
            "expired": part.expired,
            "raw_bytes": part.raw_bytes,
        }
    )


def decode_result(data: bytes) -> LoadTaskResult:
    """Decode the result of a task."""
    fields = msgpack.unpackb(data)
    manifest = decode_manifest(fields.pop("ssts"), path="the result of a task")
    return LoadTaskResult(ssts=tuple(view.sst for view in manifest.views()), **fields)


RESULT = "is_error boolean, result binary"
"""The columns of ``load_partition``.  Spark takes the row of whichever attempt of a partition ends first."""


def load_partition(plan: LoadTaskPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write one partition; a ShaleError is returned as a result, because a retry would not help."""

    async def main(env: Env) -> LoadTaskResult:
        return await run_load_task(batches, plan, env)

    try:
        is_error, result = False, encode_result(run_async(main))
    except ShaleError as error:
        is_error, result = True, encode_error(error)
    columns: list[Any] = [pa.array([is_error], pa.bool_()), pa.array([result], pa.binary())]
    yield pa.RecordBatch.from_arrays(columns, names=["is_error", "result"])
