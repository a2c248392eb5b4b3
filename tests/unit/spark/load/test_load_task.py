"""One task of a load: sorted batches to SSTs in a store, which the commit publishes."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pyarrow as pa
import pytest

import shale
from shale.engine.load.target import NewDatabase
from shale.engine.location import DatabaseLocation
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.format.sst.filter_policy import BloomPolicy, FixedPrefix
from shale.store.connect import connect
from shale.telemetry.metrics import Metrics
from shale_spark.load.load_task import decode_result, encode_result, run_load_task
from shale_spark.load.request import load_request
from shale_spark.load.rules import DuplicateKeys, LoadTaskPlan, LoadTaskResult, RowRules

ENV = Env.system()
PREFIXES = BloomPolicy(prefix_extractor=FixedPrefix("p6", 6), whole_key=False)


def batches(numbers: range, size: int = 1000) -> Iterator[pa.RecordBatch]:
    for start in range(numbers.start, numbers.stop, size):
        keys = [b"%08d" % number for number in range(start, min(start + size, numbers.stop))]
        yield pa.RecordBatch.from_pydict({"shale_key": keys, "shale_value": [key * 20 for key in keys]})


def plan_of(where: DatabaseLocation, target: NewDatabase) -> LoadTaskPlan:
    return LoadTaskPlan(
        where=where,
        rules=RowRules(stamp=target.stamp, duplicates=DuplicateKeys.LAST),
        sst=load_request(
            "file:///anywhere", compression="lz4", min_filter_keys=1, filter_policies=(BloomPolicy(), PREFIXES)
        ).sst,
        sst_bytes=20_000,
    )


def test_two_tasks_make_one_database(tmp_path: Path) -> None:
    async def scenario() -> None:
        where = DatabaseLocation(f"file://{tmp_path}", "db")
        store = connect(where.store, ENV)
        target = await NewDatabase.open(store, "db", ENV, Metrics())
        plan = plan_of(where, target)
        parts = [await run_load_task(batches(range(first, first + 5000)), plan, ENV) for first in (5000, 0)]
        parts = [decode_result(encode_result(part)) for part in parts]
        assert [part.rows for part in parts] == [5000, 5000]
        assert all(len(part.ssts) > 2 for part in parts)
        assert all(sst.info.filter_len for part in parts for sst in part.ssts)
        await target.commit([sst for part in parts for sst in part.ssts])
        async with shale.DbReader.open("db", store=store) as reader:
            rows = [(row.key, row.value) async for row in reader.scan()]
        metrics, policies = Metrics(), (BloomPolicy(), PREFIXES)
        async with shale.DbReader.open("db", store=store, metrics=metrics, filter_policies=policies) as reader:
            assert [row async for row in reader.scan(prefix=b"00005a")] == []
            metrics.refresh()
        ruled_out = "slatedb_db_sst_filter_negatives_total"
        assert metrics.registry.get_sample_value(ruled_out, {"db": "", "kind": "prefix"}) == 1
        assert rows == [(b"%08d" % number, b"%08d" % number * 20) for number in range(10_000)]

    anyio.run(scenario)


def test_a_bad_row_ends_the_task_with_its_own_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        where = DatabaseLocation(f"file://{tmp_path}", "db")
        target = await NewDatabase.open(connect(where.store, ENV), "db", ENV, Metrics())
        bad = pa.RecordBatch.from_pydict({"shale_key": [b"99999999", b""], "shale_value": [b"x", b"y"]})
        with pytest.raises(InvalidRequestError, match="value 'y': the key is empty"):
            await run_load_task([*batches(range(3000)), bad], plan_of(where, target), ENV)

    anyio.run(scenario)


def test_no_rows_are_no_ssts(tmp_path: Path) -> None:
    async def scenario() -> None:
        where = DatabaseLocation(f"file://{tmp_path}", "db")
        target = await NewDatabase.open(connect(where.store, ENV), "db", ENV, Metrics())
        part = await run_load_task([], plan_of(where, target), ENV)
        assert decode_result(encode_result(part)) == LoadTaskResult()

    anyio.run(scenario)
    assert list(tmp_path.iterdir()) == []
