"""What a Spark task runs: one partition of sorted rows in, one row about what was written out."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from shale.env import Env
from shale.errors import ShaleError
from shale_spark.load.part import encode_part, run_part
from shale_spark.load.rules import Part, PartPlan
from shale_spark.task_errors import encode_error
from shale_spark.tasks import run_async

RESULT = "is_error boolean, result binary"
"""The columns of ``load_partition``.  Spark takes one attempt's row for each partition, whichever ends first."""


def load_partition(plan: PartPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write one partition; an error of ours is a result, because trying again would not help."""

    async def main(env: Env) -> Part:
        return await run_part(batches, plan, env)

    try:
        is_error, result = False, encode_part(run_async(main))
    except ShaleError as error:
        is_error, result = True, encode_error(error)
    columns: list[Any] = [pa.array([is_error], pa.bool_()), pa.array([result], pa.binary())]
    yield pa.RecordBatch.from_arrays(columns, names=["is_error", "result"])
