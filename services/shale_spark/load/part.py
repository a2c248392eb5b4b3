"""One task of a load: rows in key order become SSTs in the store, and their footers come back."""

from collections.abc import Iterable, Iterator
from functools import partial

import anyio
import msgpack
import pyarrow as pa

from shale.env import Env
from shale.format.manifest import decode_manifest, encode_manifest
from shale.kernels.choice import load_kernels
from shale.kernels.rows import Rows
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Manifest, RunId, SortedRun, Sst, SstView, Tree
from shale_compactor.execution.output import RunWriter
from shale_compactor.first_error import first_error
from shale_spark.load.rows import RowStream
from shale_spark.load.rules import Part, PartPlan


async def write_part(batches: Iterable[pa.RecordBatch], plan: PartPlan, store: ObjectStore, env: Env) -> Part:
    """Write the rows of one task.

    Args:
        batches: the columns of ``rules``, by key; asked for one after the other, from a thread.

    Raises:
        InvalidRequestError: a row is impossible; what is uploaded already is named by nobody.
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
                options=plan.sst,
                max_sst_size_bytes=plan.sst_bytes,
                not_before_ms=plan.rules.stamp.not_before_ms,
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
    return Part(ssts=tuple(ssts), rows=rows, repeated=stream.repeated, expired=stream.expired, raw_bytes=raw_bytes)


def _next(batches: Iterator[pa.RecordBatch], stream: RowStream) -> Rows | None:
    batch = next(batches, None)
    return None if batch is None else stream.take(batch)


async def run_part(batches: Iterable[pa.RecordBatch], plan: PartPlan, env: Env) -> Part:
    """As ``write_part``, into the plan's store."""
    await env.cpu.run(load_kernels)
    stores = plan.where.connect(env, Metrics(), component="pipeline")
    try:
        return await write_part(batches, plan, stores.main, env)
    finally:
        await stores.aclose()


def encode_part(part: Part) -> bytes:
    """What a task hands to the driver; SSTs in the form in which a manifest holds them."""
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


def decode_part(data: bytes) -> Part:
    """The inverse of ``encode_part``."""
    fields = msgpack.unpackb(data)
    manifest = decode_manifest(fields.pop("ssts"), path="the result of a task")
    return Part(ssts=tuple(view.sst for view in manifest.views()), **fields)
