"""The number of tasks of a load, and so about the number of its SSTs.

A new database takes its SSTs as one run, so every core may make one.  An append makes each of them an L0, and a writer
bears only a few, so rows that fit one SST are written by one task.  Spark estimates the size of the rows; it treats an
unknown size as infinite, and a join as the product of its sides.
"""

import math
from typing import TYPE_CHECKING

from shale_spark.load.request import LoadMode
from shale_spark.tasks import is_remote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TASKS_MAX = 4096
"""In a load of more SSTs than this a task makes several."""

_ENDLESS = 1 << 62
_CORES_GUESS = 8
_FLAT_BYTES = {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "float": 4, "date": 4}
_OTHER_BYTES = 8


def plan_tasks(estimate: int | None, *, mode: LoadMode, cores: int, sst_bytes: int) -> int | None:
    """Return the number of tasks; ``None``: the rows have to be measured first.

    Args:
        estimate: bytes of all rows as Spark estimates them; ``None``: unknown.
        mode: of the load.
        cores: of the cluster.
        sst_bytes: size of one SST.
    """
    if estimate is not None and estimate <= TASKS_MAX * sst_bytes:
        return plan_tasks_for_size(estimate, mode=mode, cores=cores, sst_bytes=sst_bytes)
    is_endless = estimate is None or estimate >= _ENDLESS
    # For a new database, tasks that make many SSTs cost less than another pass over all rows.
    return cores if is_endless and mode is LoadMode.CREATE else None


def plan_tasks_for_size(size: int, *, mode: LoadMode, cores: int, sst_bytes: int) -> int:
    """Return the number of tasks for rows of ``size`` bytes."""
    wanted = min(math.ceil(size / sst_bytes), TASKS_MAX)
    return max(wanted, cores if mode is LoadMode.CREATE else 1)


def task_count(rows: "DataFrame", *, mode: LoadMode, sst_bytes: int) -> int:
    """Return the number of tasks for these rows, which are read only if their size is unknown otherwise."""
    spark = rows.sparkSession
    cores, estimate = _CORES_GUESS, None
    if not is_remote(spark):
        cores = spark.sparkContext.defaultParallelism
        estimate = int(str(rows._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    count = plan_tasks(estimate, mode=mode, cores=cores, sst_bytes=sst_bytes)
    if count is not None:
        return count
    return plan_tasks_for_size(measure_bytes(rows), mode=mode, cores=cores, sst_bytes=sst_bytes)


def measure_bytes(rows: "DataFrame") -> int:
    """Return about how many bytes the rows have: text and bytes by their length, other columns by their type."""
    from pyspark.sql import functions as f

    sizes = [_size(rows, name) for name in rows.columns]
    total = rows.select(sum(sizes[1:], sizes[0]).alias("size")).agg(f.sum("size")).first()
    return 0 if total is None or total[0] is None else int(total[0])


def _size(rows: "DataFrame", name: str) -> "Column":
    from pyspark.sql import functions as f

    kind = rows.schema[name].dataType.simpleString()
    if kind in ("binary", "string"):
        column = f.col("`" + name.replace("`", "``") + "`")
        return f.coalesce(f.octet_length(column), f.lit(0)).cast("bigint")
    return f.lit(_FLAT_BYTES.get(kind, _OTHER_BYTES)).cast("bigint")
