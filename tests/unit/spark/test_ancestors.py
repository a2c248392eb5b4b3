"""Tasks on a clone of a clone find every SST of its ancestors."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import anyio
import pyarrow as pa
import pytest

import shale
from shale.admin.verify.inventory import read_inventory
from shale.admin.verify.parts import plan_parts
from shale.engine.load.target import ExistingDatabase
from shale.engine.location import DatabaseLocation, resolve
from shale.env import Env
from shale.kernels.rows import entries_from_rows
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.sst.options import SstOptions
from shale.store.connect import open_store
from shale.telemetry.metrics import Metrics
from shale.types import Compaction, KeyRange, Manifest, RunId, Seq, SortedRun, SstView, TieredSpec, Tree
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.job import plan_job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_spark.compaction.task_plan import TaskPlan, decode_plan, encode_plan, trim_job
from shale_spark.load.load_task import run_load_task
from shale_spark.load.request import load_request
from shale_spark.load.rules import DuplicateKeys, LoadTaskPlan, RowRules
from shale_spark.scrub import _verified
from shale_spark.source.filters import KeySet
from shale_spark.source.options import SparkReadOptions
from shale_spark.source.planner import plan_read
from tests.unit.clones.lineage import PATHS, Lineage, Rows, manifest_of, written
from tests.unit.spark.source.databases import rows_of_plan

ENV = Env.system()
CUTS = (None, b"key-25", b"key-45", None)


def parse_where(lineage: Lineage, path: str) -> DatabaseLocation:
    return resolve(lineage.place(path))


@pytest.mark.parametrize("partition_bytes", [700, 1 << 20])
def test_reads(partition_bytes: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        lineage = await written(f"file://{tmp_path}")
        for path in PATHS:
            options = SparkReadOptions(where=parse_where(lineage, path), partition_bytes=partition_bytes)
            singles = tuple(sorted(lineage.rows["g"]))[::7]
            for wanted in (KeySet(), KeySet(KeyRange.half_open(b"key-15", b"key-45")), KeySet(keys=singles)):
                plans = (await plan_read(options, wanted, ENV)).plans
                assert len(plans) > 1 or partition_bytes > 700 or wanted != KeySet()
                found = {
                    entry.key: bytes(entry.value)
                    for plan in plans
                    for entry in entries_from_rows(await rows_of_plan(plan, ENV))
                }
                assert found == {
                    key: value
                    for key, value in lineage.rows[path].items()
                    if wanted.key_range.contains(key) and (wanted.keys is None or key in wanted.keys)
                }

    anyio.run(scenario)


def test_scrub(tmp_path: Path) -> None:
    """Also each part of a task separately."""

    async def scenario() -> None:
        lineage = await written(f"file://{tmp_path}")
        for path in PATHS:
            inventory = await read_inventory(open_store(lineage.url), None, path, ENV)
            assert inventory.findings == ()
            for part in plan_parts(inventory, part_bytes=1, items_max=1):
                result = await _verified(parse_where(lineage, path), part, ENV)
                assert (result.findings, result.gone) == ((), ())

    anyio.run(scenario)


def test_compaction(tmp_path: Path) -> None:
    """Each task knows only its plan; together their ranges cover the whole database."""

    async def scenario() -> None:
        lineage = await written(f"file://{tmp_path}")
        for path in ("p", "c"):
            store = open_store(lineage.url)
            stored = await ManifestStore(store, path, ENV).load()
            l0 = stored.value.tree.l0
            spec = TieredSpec(l0_view_ids=tuple(view.id for view in l0), sorted_runs=(), destination=RunId(0))
            job = plan_job(Compaction(id=ENV.ids.ulid(), spec=spec), stored.value)
            views = []
            for index, (first, end) in enumerate(pairwise(CUTS)):
                keys = KeyRange.half_open(first, end)
                plan = TaskPlan(
                    where=parse_where(lineage, path),
                    job=trim_job(job, keys),
                    index=index,
                    range=keys,
                    retention_min_seq=Seq(2**50),
                    options=ExecutorOptions(sst=SstOptions(block_size_bytes=1024)),
                    driver=("127.0.0.1", 1),
                    token="",
                )
                views += await merged(decode_plan(encode_plan(plan)))
            await stored.update(Versioned(stored.id, compacted(stored.value, tuple(views))))
            async with shale.DbReader.open(lineage.place(path)) as db:
                assert {row.key: row.value async for row in db.scan()} == lineage.rows[path]

    anyio.run(scenario)


async def merged(plan: TaskPlan) -> list[SstView]:
    progress = JobProgress(retention_min_seq=plan.retention_min_seq)
    progress.plan((plan.range,))
    stores = plan.where.connect(ENV, Metrics(), component="worker")
    executor = Executor(stores.main, plan.where.root, ENV, plan.options)
    ssts = await executor.run(plan.job, progress)
    await stores.aclose()
    return [SstView(id=sst.id, sst=sst) for sst in ssts]


def compacted(manifest: Manifest, views: tuple[SstView, ...]) -> Manifest:
    """Nothing is borrowed afterwards."""
    return replace(manifest, tree=Tree(compacted=(SortedRun(id=RunId(0), ssts=views),)), external_dbs=())


def test_a_load_on_top(tmp_path: Path) -> None:
    """Borrowed SSTs stay at their paths, and loaded ones belong to the clone."""

    async def scenario() -> None:
        lineage = await written(f"file://{tmp_path}")
        before = await manifest_of(open_store(lineage.url), "c")
        where = parse_where(lineage, "c")
        stores = where.connect(ENV, Metrics(), component="pipeline")
        target = await ExistingDatabase.open(stores.main, "c", ENV, Metrics())
        plan = LoadTaskPlan(
            where=where,
            rules=RowRules(stamp=target.stamp, duplicates=DuplicateKeys.LAST),
            sst=load_request("file:///anywhere").sst,
            sst_bytes=20_000,
        )
        loaded: Rows = {b"key-%02d" % number: b"loaded" for number in range(30, 35)}
        batch = pa.RecordBatch.from_pydict({"shale_key": [*loaded], "shale_value": [*loaded.values()]})
        part = await run_load_task(iter([batch]), plan, ENV)
        await target.commit(part.ssts)
        await target.close()
        await stores.aclose()
        async with shale.DbReader.open(lineage.place("c")) as db:
            assert {row.key: row.value async for row in db.scan()} == {**lineage.rows["c"], **loaded}
        assert (await manifest_of(open_store(lineage.url), "c")).external_dbs == before.external_dbs

    anyio.run(scenario)
