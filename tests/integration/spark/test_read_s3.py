"""Tasks of a read open an S3 server with the given options; no session is needed."""

import asyncio

import pytest

import shale
from shale.kernels.rows import concat_rows, entries_from_rows
from shale.store.options import StoreOptions
from shale_spark.source.filters import requested_keys
from shale_spark.source.options import SparkReadOptions, parse_where, where_options
from shale_spark.source.plan_reader import read_rows
from shale_spark.source.planner import plan_read
from shale_spark.source.read_plan import ReadPlan
from shale_spark.tasks import run_async
from tests.integration.store.servers import s3_server


@pytest.mark.parametrize("from_environment", [False, True])
def test_a_read_over_s3(monkeypatch: pytest.MonkeyPatch, *, from_environment: bool) -> None:
    """It is planned in one event loop and executed in others, as in Spark's workers."""
    with s3_server("lake") as endpoint:
        config = {"endpoint": endpoint, "access_key_id": "t", "secret_access_key": "t", "region": "us-east-1"}

        async def write() -> None:
            store_options = StoreOptions(config=config)
            async with shale.Db.open("s3://lake/orders", store_options=store_options, l0_sst_size_bytes="16KiB") as db:
                for number in range(600):
                    await db.put(b"k%03d" % number, b"v" * 100)
                await db.flush("memtable")
                await (await db.put(b"k000", b"in the WAL")).durable()

        asyncio.run(write())
        given = {"url": "s3://lake/orders", "partition_bytes": "16KiB"}
        if from_environment:
            for name, value in config.items():
                monkeypatch.setenv(f"SHALE_STORE__{name.upper()}", value)
        else:
            given |= {f"store.{name}": value for name, value in config.items()}
        options = SparkReadOptions.parse(given)
        assert parse_where(where_options(options.where)) == options.where
        planned = run_async(lambda env: plan_read(options, requested_keys(options), env))
        assert len(planned.plans) > 2
        if from_environment:
            assert all(b"127.0.0.1" not in plan.encode() for plan in planned.plans)
        chunks = [rows for plan in planned.plans for rows in read_rows(ReadPlan.decode(plan.encode()))]
        found = [(entry.key, entry.value) for entry in entries_from_rows(concat_rows(chunks))]
    assert found == [(b"k000", b"in the WAL"), *((b"k%03d" % number, b"v" * 100) for number in range(1, 600))]
