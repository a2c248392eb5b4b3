"""How many tasks, and so about how many SSTs, a load has.

A new database takes its SSTs as one run: there every core may make one.  An append makes each of them an L0, of which
a writer bears few, so rows that fit one SST become one, by one task.  How large the rows are, Spark estimates; what it
cannot estimate it takes for endless, and a join for the product of its sides.
"""

import math
from typing import TYPE_CHECKING

from shale_spark.load.request import Mode
from shale_spark.tags import is_remote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TASKS_MAX = 4096
"""A load of more SSTs has tasks that make several."""

_ENDLESS = 1 << 62
_CORES_GUESS = 8
_FLAT_BYTES = {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "float": 4, "date": 4}
_OTHER_BYTES = 8


def plan_tasks(estimate: int | None, *, mode: Mode, cores: int, sst_bytes: int) -> int | None:
    """How many tasks; ``None``: the rows have to be measured first.

    Args:
        estimate: bytes of all rows as Spark sees it; ``None``: it does not say.
    """
    if estimate is not None and estimate <= TASKS_MAX * sst_bytes:
        return plan_measured(estimate, mode=mode, cores=cores, sst_bytes=sst_bytes)
    is_endless = estimate is None or estimate >= _ENDLESS
    # A new database suffers from tasks that make many SSTs less than from one more look at all rows.
    return cores if is_endless and mode is Mode.CREATE else None


def plan_measured(size: int, *, mode: Mode, cores: int, sst_bytes: int) -> int:
    """How many tasks for so many bytes."""
    wanted = min(math.ceil(size / sst_bytes), TASKS_MAX)
    return max(wanted, cores if mode is Mode.CREATE else 1)


def task_count(rows: "DataFrame", *, mode: Mode, sst_bytes: int) -> int:
    """The number of tasks for these rows, which are looked at only if nothing else tells their size."""
    spark = rows.sparkSession
    cores, estimate = _CORES_GUESS, None
    if not is_remote(spark):
        cores = spark.sparkContext.defaultParallelism
        estimate = int(str(rows._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    count = plan_tasks(estimate, mode=mode, cores=cores, sst_bytes=sst_bytes)
    if count is not None:
        return count
    return plan_measured(measured_bytes(rows), mode=mode, cores=cores, sst_bytes=sst_bytes)


def measured_bytes(rows: "DataFrame") -> int:
    """About how many bytes the rows have: text and bytes by their length, anything else by its type."""
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
