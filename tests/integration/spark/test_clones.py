"""Clones, parts and unions on real Spark: borrowed SSTs are read from their owner until a compaction rewrites them."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
from pyspark.sql import SparkSession

import shale
from shale.admin.clones import source
from shale.compaction.policies.size_tiered import SizeTiered
from shale.compaction.requests import Sources
from shale.compaction.status import CompactionInfo
from shale.engine.location import DatabaseLocation, resolve
from shale.env import Env
from shale.protocol.manifest_store import ManifestStore
from shale.store.connect import connect, open_store
from shale.types import CompactionStatus, KeyRange, Manifest, Tree
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_spark.compaction.worker import SparkWorkerOptions, compact
from shale_spark.export import export
from shale_spark.load import load
from shale_spark.scrub import scrub
from tests.integration.spark.load.load_rows import contents, numbered
from tests.interop.compaction.harness import FAST, WORKS, executor_options
from tests.unit.clones.lineage import CUT, PATHS, Rows, clone, fill, rows_of, written

COUNT = 1000


def read(spark: SparkSession, url: str, **options: str) -> Rows:
    """Return the rows of one query, and check that no key is returned twice."""
    found = spark.read.format("shale").options(**options).load(url).select("key", "value").collect()
    rows = {bytes(row["key"]): bytes(row["value"]) for row in found}
    assert len(rows) == len(found)
    return rows


def compacted(spark: SparkSession, where: DatabaseLocation, tree: Tree) -> tuple[CompactionInfo, ...]:
    """Merge a whole tree on Spark, with a coordinator that proposes and executes nothing itself."""
    request = Sources(
        l0_view_ids=tuple(view.id for view in tree.l0), sorted_runs=tuple(run.id for run in tree.compacted)
    )
    worker_options = SparkWorkerOptions(options=executor_options(), worker=WORKS)

    async def main() -> tuple[CompactionInfo, ...]:
        env = Env.system()
        store = connect(str(where.store), env)
        idle = replace(FAST, scheduler=SizeTiered(min_compaction_sources=50, max_compaction_sources=50))
        options = CompactorOptions(coordinator=idle, worker=WORKS, embedded_worker=False)
        coordinator = Compactor(store, where.root, env, options)
        await coordinator.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(coordinator.run)
            ended = await anyio.to_thread.run_sync(
                partial(compact, spark, where, request, worker_options=worker_options)
            )
            tasks.cancel_scope.cancel()
        await store.aclose()
        return ended

    return asyncio.run(main())


def newest(store: str, path: str) -> Manifest:
    async def load_manifest() -> Manifest:
        return (await ManifestStore(open_store(store), path, Env.system()).load()).value

    return asyncio.run(load_manifest())


def test_a_clone_is_read_compacted_checked_and_exported(spark: SparkSession, tmp_path: Path) -> None:
    """Its parent is a load and continues to be written; the clone has its own SSTs and WAL."""
    store = f"file://{tmp_path}/store"
    parent, url = f"{store}/parent", f"{store}/clone"
    df = numbered(spark, COUNT).select("key", "value")
    load(df, parent, partitions=2, sst_bytes="64KiB")
    model = contents(parent)
    keys = sorted(model)
    assert len(keys) == COUNT

    async def part_ways() -> None:
        await clone(store, "clone", source("parent"))
        async with shale.Db.open(parent) as db:
            await db.put(keys[0], b"of the parent")
        async with shale.Db.open(url) as db:
            for key in keys[::3]:
                await db.put(key, b"of the clone")
            await db.flush("memtable")
            for key in keys[::7]:
                await db.delete(key)
            await db.close("wal")

    asyncio.run(part_ways())
    model |= dict.fromkeys(keys[::3], b"of the clone")
    model = {key: value for key, value in model.items() if key not in set(keys[::7])}
    assert contents(url) == model
    assert read(spark, url, partition_bytes="64KiB") == model

    where = resolve(url)
    before = newest(store, "clone")
    assert before.external_dbs
    ended = compacted(spark, where, before.tree)
    assert [info.status for info in ended] == [CompactionStatus.COMPLETED]
    after = newest(store, "clone")
    assert (after.tree.l0, len(after.tree.compacted)) == ((), 1)
    assert not set(after.ssts()) & set(before.ssts())
    assert contents(url) == model
    assert scrub(spark, url).findings == ()

    target = str(tmp_path / "out")
    assert export(spark, where, target).rows == len(model)
    files = spark.read.parquet(target).select("key", "value").collect()
    assert {bytes(row["key"]): bytes(row["value"]) for row in files} == model
    assert contents(parent)[keys[0]] == b"of the parent"


def test_a_clone_of_a_part_of_a_clone(spark: SparkSession, tmp_path: Path) -> None:
    """An unreadable object with the same id is at every wrong path of a borrowed SST."""
    lineage = asyncio.run(written(f"file://{tmp_path}"))
    for path in PATHS:
        url = lineage.place(path)
        assert read(spark, url, partition_bytes="4KiB") == lineage.rows[path]
        assert scrub(spark, url).findings == ()
    assert read(spark, lineage.place("c"), keys="key-45,key-10,key-70") == {
        key: lineage.rows["c"][key] for key in (b"key-45", b"key-10")
    }


def test_a_union_of_parts(spark: SparkSession, tmp_path: Path) -> None:
    """Split in two, written separately, joined, and compacted: every row exists once."""
    store = f"file://{tmp_path}"
    whole, left, right = rows_of("whole", 0, 100), rows_of("left", 30, 40), rows_of("right", 60, 70)

    async def scenario() -> None:
        await fill(store, "whole", whole)
        await clone(store, "left", source("whole", end=CUT))
        await clone(store, "right", source("whole", start=CUT))
        await fill(store, "left", left)
        await fill(store, "right", right)
        await clone(store, "union", source("left", end=CUT), source("right", start=CUT))

    asyncio.run(scenario())
    url, model = f"{store}/union", whole | left | right
    borrowed = set(newest(store, "union").ssts())
    for _ in range(2):
        assert read(spark, url, partition_bytes="4KiB") == model
        assert read(spark, url, start="key-35", stop="key-65") == {
            key: value for key, value in model.items() if KeyRange.half_open(b"key-35", b"key-65").contains(key)
        }
        compacted(spark, resolve(url), newest(store, "union").tree)
    assert not borrowed & set(newest(store, "union").ssts())
