"""Rows that executors generate and whose values can be checked.

    python -m tests.integration.soak.spark_rows MASTER FOLDER ROWS

Layers of rows lie over each other: the lowest is a sorted run with every number as a key, the others are L0s with some
of them again.  A value is one byte that names the layer, then its key repeated.  The last layer comes through
the bulk load, the others are written by tasks directly, so that no gigabytes are sorted which are in order already.
"""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgpack
import numpy as np

from shale.engine.location import DatabaseLocation
from shale.env import Env
from shale.kernels.rows import Rows
from shale.protocol.manifest_store import ManifestStore
from shale.sst.cache import BlockCache
from shale.sst.options import SstOptions
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.sst.source import SstViewsSource
from shale.store.connect import connect
from shale.telemetry.metrics import Metrics
from shale.types import Manifest, RunId, Seq, SortedRun, Sst, SstView, Tree
from shale_compactor.execution.run_writer import OutputOptions, RunWriter
from shale_spark.compaction.messages import TaskReport, decode, encode
from shale_spark.tasks import TaskInfo, run_async, run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ROOT = "db"
KEY_BYTES, VALUE_BYTES = 16, 1024
ROW_BYTES = KEY_BYTES + VALUE_BYTES
SST_BYTES = 64 << 20
PARTS = 8
"""Of a layer, each written by a task."""
LAYERS = 4
STEP = 8
"""Each layer above the lowest has one number in so many."""
LOADED, LOADED_STEP = 9, 64
"""The layer that is bulk loaded."""
_CHUNK = 20_000


def layer_of(numbers: np.ndarray) -> np.ndarray:
    """Return the layer with the newest row for each number."""
    step = numbers % STEP
    newest = np.where((step >= 1) & (step < LAYERS), step, 0)
    return np.where(numbers % LOADED_STEP == 0, LOADED, newest)


def keys_of(numbers: np.ndarray) -> np.ndarray:
    """Return keys as bytes, shape (n, 16): ``key-`` and twelve digits."""
    digits = numbers[:, None] // 10 ** np.arange(11, -1, -1) % 10 + ord("0")
    prefix = np.broadcast_to(np.frombuffer(b"key-", np.uint8), (len(numbers), 4))
    return np.concatenate([prefix, digits.astype(np.uint8)], axis=1)


def values_of(numbers: np.ndarray, layers: np.ndarray) -> np.ndarray:
    """Return values as bytes, shape (n, 1024)."""
    values = np.tile(keys_of(numbers), (1, VALUE_BYTES // KEY_BYTES))
    values[:, 0] = layers
    return values


def _chunks(layer: int, start: int, end: int) -> Iterator[Rows]:
    for first in range(start, end, _CHUNK * STEP if layer else _CHUNK):
        numbers = np.arange(first, min(end, first + (_CHUNK * STEP if layer else _CHUNK)))
        if layer:
            numbers = numbers[numbers % STEP == layer]
        count = len(numbers)
        yield Rows(
            key_bytes=keys_of(numbers).reshape(-1),
            key_offsets=np.arange(count + 1, dtype=np.int64) * KEY_BYTES,
            val_bytes=values_of(numbers, np.full(count, layer, np.uint8)).reshape(-1),
            val_offsets=np.arange(count + 1, dtype=np.int64) * VALUE_BYTES,
            seq=np.full(count, layer + 1, np.uint64),
            flags=np.zeros(count, np.uint8),
            create_ts=np.zeros(count, np.int64),
            expire_ts=np.zeros(count, np.int64),
        )


def write_part(plan: bytes, _info: TaskInfo) -> bytes:
    """Write the SSTs of a part of a layer, as a task."""
    return run_async(partial(_write_part, *msgpack.unpackb(plan)))


async def _write_part(folder: str, layer: int, start: int, end: int, env: Env) -> bytes:
    store = connect(f"file://{folder}", env)
    written: list[Sst] = []
    async with anyio.create_task_group() as tasks:
        writer = RunWriter(
            store,
            ROOT,
            env,
            tasks,
            options=OutputOptions(sst=SstOptions(), max_sst_size_bytes=SST_BYTES, not_before_ms=0),
            on_sst=written.append,
        )
        for rows in _chunks(layer, start, end):
            await writer.add(rows)
        await writer.close()
    await store.aclose()
    return encode(TaskReport(0, tuple(written)))


def generate(spark: "SparkSession", folder: Path, rows: int) -> None:
    """Generate a database of all layers."""
    edges = np.linspace(0, rows, PARTS + 1).astype(int).tolist()
    plans = [(str(folder), layer, edges[i], edges[i + 1]) for layer in range(LAYERS) for i in range(PARTS)]
    reports = [decode(answer[4:]) for answer in run_tasks(spark, [msgpack.packb(plan) for plan in plans], write_part)]
    layers: list[list[SstView]] = [[] for _ in range(LAYERS)]
    for plan, report in zip(plans, reports, strict=True):
        assert isinstance(report, TaskReport)
        layers[plan[1]] += map(SstView.identity, report.ssts)
    l0 = [view for layer in reversed(layers[1:]) for view in layer]
    run = SortedRun(id=RunId(1), ssts=tuple(layers[0]))
    manifest = Manifest(
        tree=Tree(l0=tuple(l0), compacted=(run,)),
        last_l0_seq=Seq(LAYERS),
        recent_snapshot_min_seq=Seq(LAYERS),
        last_l0_clock_tick=0,
    )
    anyio.run(_create, folder, manifest)
    _load_last_layer(spark, folder, rows)


async def _create(folder: Path, manifest: Manifest) -> None:
    env = Env.system()
    store = connect(f"file://{folder}", env)
    await ManifestStore(store, ROOT, env).create_new(manifest)
    await store.aclose()


def _load_last_layer(spark: "SparkSession", folder: Path, rows: int) -> None:
    from shale_spark.load.bulk_load import load

    frame = spark.range(0, rows, LOADED_STEP, PARTS).mapInArrow(_loaded_rows, "key binary, value binary")
    load(frame, DatabaseLocation(f"file://{folder}", ROOT), mode="append", fence=True)


def _loaded_rows(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    for batch in batches:
        numbers = batch.column(0).to_numpy()
        keys = keys_of(numbers).tobytes()
        values = values_of(numbers, np.full(len(numbers), LOADED, np.uint8)).tobytes()
        columns = [
            pa.array([data[i * size : (i + 1) * size] for i in range(len(numbers))], pa.binary())
            for data, size in ((keys, KEY_BYTES), (values, VALUE_BYTES))
        ]
        yield pa.RecordBatch.from_arrays(columns, names=["key", "value"])


async def check(folder: Path, rows: int) -> None:
    """Check that every number exists once, with the value of the newest layer, in one sorted run."""
    env = Env.system()
    store = connect(f"file://{folder}", env)
    manifest = (await ManifestStore(store, ROOT, env, Metrics()).read_latest()).value
    assert not manifest.tree.l0
    (run,) = manifest.tree.compacted
    source = SstViewsSource(SstReader(store, SstPaths.of(ROOT, manifest), BlockCache(64 << 20), env), run.ssts)
    seen = 0
    while (found := await source.next()) is not None:
        numbers = np.arange(seen, seen + len(found))
        seen += len(found)
        keys = keys_of(numbers).reshape(-1)
        values = values_of(numbers, layer_of(numbers)).reshape(-1)
        key_start, key_end = found.key_offsets[0], found.key_offsets[-1]
        assert np.array_equal(found.key_bytes[key_start:key_end], keys), f"keys around number {numbers[0]}"
        value_start, value_end = found.val_offsets[0], found.val_offsets[-1]
        assert np.array_equal(found.val_bytes[value_start:value_end], values), f"values around number {numbers[0]}"
    assert seen == rows
    await store.aclose()


def main(master: str, folder: str, rows: str) -> None:
    """Generate on a cluster."""
    from shale_spark.session import spark_session

    conf = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = spark_session(master=master, app_name="rows", conf=conf)
    try:
        generate(spark, Path(folder), int(rows))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
