"""A DataFrame of one state that belongs to one piece of work: planned in the driver, and let go when the work is done.

``format("shale")`` is planned in a process of Spark's that hears nothing of the end of a query.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from pyspark.sql.types import DataType, StructType

from shale.engine.pin import Pin
from shale.engine.where import Stores, Where
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.telemetry.metrics import Metrics
from shale_spark.beside import held_beside
from shale_spark.one_line import one_line
from shale_spark.source.batches import batches, columns_of, wanted_keys
from shale_spark.source.columns import Columns, default_schema
from shale_spark.source.lease import keep_lease, let_go
from shale_spark.source.options import ReadOptions
from shale_spark.source.plan import ReadPlan
from shale_spark.source.planning import PlannedRead, plan_read
from shale_spark.tasks import run_async

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def snapshot(
    spark: "SparkSession", options: ReadOptions, schema: StructType | str | None = None
) -> Iterator["DataFrame"]:
    """A DataFrame that shows the same state whenever it is used; its checkpoint is renewed, and deleted at the end.

    Blocks while it is planned; call it from a thread without an event loop.

    Args:
        spark: a classic session or one over Connect.
        options: of the read.
        schema: the columns; by default those of ``default_schema``.

    Raises:
        InvalidRequestError: rows cannot have these columns.
        LatestRecordMissing, InvalidDbState, CheckpointMissing: see ``take_snapshot``.
    """
    columns = as_struct(schema if schema is not None else default_schema(options.value_format))
    of_rows = columns_of(columns, options)
    planned = run_async(partial(plan_read, options, wanted_keys(options), is_shared=False))
    with held_beside(_connected(options.where, planned, Env.system())):
        yield _frame(spark, tuple(plan.encode() for plan in planned.plans), columns, of_rows)


@asynccontextmanager
async def holding(planned: PlannedRead, where: Where, stores: Stores, env: Env) -> AsyncIterator[None]:
    """Renew the checkpoint of a read also while none of its tasks runs, and delete it at the end.

    One that somebody else made is left alone.
    """
    if planned.lease.lifetime_ms is None:
        yield
        return
    async with anyio.create_task_group() as tasks:
        for plan in planned.plans[:1]:
            # Nobody looks at this pin: tasks have their own, and tell what became of the checkpoint.
            tasks.start_soon(keep_lease, plan, Pin(), stores, env, name="lease")
        yield
        tasks.cancel_scope.cancel()
    await let_go(where, planned.lease.checkpoint_id, stores, env)


def as_struct(schema: StructType | str) -> StructType:
    """Columns as Spark's type, or as it writes them: ``"key binary, n bigint"``.

    Raises:
        InvalidRequestError: the text is a type, but not one of rows.
    """
    if isinstance(schema, str):
        parsed = DataType.fromDDL(schema)
        if not isinstance(parsed, StructType):
            raise InvalidRequestError(f"{schema!r} is one type, and no list of columns such as 'key binary, n int'")
        return parsed
    return schema


def _frame(spark: "SparkSession", plans: tuple[bytes, ...], schema: StructType, columns: Columns) -> "DataFrame":
    if not plans:
        return spark.createDataFrame([], schema)

    def read(numbers: Iterator[Any]) -> Iterator[Any]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                with one_line():
                    yield from batches(ReadPlan.decode(plans[number]), columns)

    return spark.range(0, len(plans), 1, len(plans)).mapInArrow(read, schema)


@asynccontextmanager
async def _connected(where: Where, planned: PlannedRead, env: Env) -> AsyncIterator[None]:
    stores = where.connect(env, Metrics(), component="pipeline")
    try:
        async with holding(planned, where, stores, env):
            yield
    finally:
        await stores.aclose()
