"""Tasks receive plans and return results."""

import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from shale.env import Env
from shale.errors import CorruptionError
from shale_spark.tasks import TaskInfo, run_async, run_tasks


def _echo(plan: bytes, info: TaskInfo) -> bytes:
    async def main(env: Env) -> bytes:
        return await env.cpu.run(lambda: b"%d:%s" % (info.partition, plan))

    return run_async(main)


def _find_damage(plan: bytes, info: TaskInfo) -> bytes:
    if plan == b"1":
        raise CorruptionError("checksum mismatch", path="db/compacted/x.sst", offset=7)
    return b""


def _fail_twice(plan: bytes, info: TaskInfo) -> bytes:
    if info.attempt < 2:
        raise RuntimeError(f"attempt {info.attempt}")
    return b"%d" % info.attempt


def _fail(plan: bytes, info: TaskInfo) -> bytes:
    with (Path(os.fsdecode(plan)) / str(info.id)).open("x"):
        raise RuntimeError("always")


def test_results_are_in_the_order_of_the_plans(spark: SparkSession) -> None:
    """Each from its own task."""
    plans = [b"%d" % number for number in range(5)]
    assert run_tasks(spark, plans, _echo) == [b"%d:%d" % (number, number) for number in range(5)]
    assert run_tasks(spark, [], _echo) == []


def test_an_error_of_ours_is_raised_as_itself(spark: SparkSession) -> None:
    """It is not wrapped in a Java exception, and not retried."""
    with pytest.raises(CorruptionError) as raised:
        run_tasks(spark, [b"0", b"1", b"2"], _find_damage)
    assert str(raised.value) == "db/compacted/x.sst at byte 7: checksum mismatch"


def test_other_errors_are_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    """As often as Spark's settings allow: local[2,4] in these tests."""
    assert run_tasks(spark, [b""], _fail_twice) == [b"2"]
    with pytest.raises(PySparkException):
        run_tasks(spark, [os.fsencode(tmp_path)], _fail)
    assert len([*tmp_path.iterdir()]) == 4
