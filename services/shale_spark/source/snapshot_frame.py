"""A DataFrame of one state that belongs to one piece of work: planned in the driver, released when the work is done.

``format("shale")`` is planned in a process of Spark's that does not know when a query ends.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from pyspark.sql.types import DataType, StructType

from shale.engine.location import DatabaseLocation, DatabaseStores
from shale.engine.read.pins import Pin
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.telemetry.metrics import Metrics
from shale_spark.errors import message_only
from shale_spark.source.columns import ReadColumns, columns_of, default_schema
from shale_spark.source.filters import requested_keys
from shale_spark.source.lease import keep_lease, release_lease
from shale_spark.source.options import SparkReadOptions
from shale_spark.source.plan_reader import read_batches
from shale_spark.source.planner import PlannedRead, plan_read
from shale_spark.source.read_plan import ReadPlan
from shale_spark.tasks import open_in_portal, run_async

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def snapshot(
    spark: "SparkSession", options: SparkReadOptions, schema: StructType | str | None = None
) -> Iterator["DataFrame"]:
    """Yield a DataFrame that always shows the same state; its checkpoint is renewed, and deleted at the end.

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
    planned = run_async(partial(plan_read, options, requested_keys(options), is_shared=False))
    with open_in_portal(_connected(options.where, planned, Env.system())):
        yield _frame(spark, tuple(plan.encode() for plan in planned.plans), columns, of_rows)


@asynccontextmanager
async def hold_lease(
    planned: PlannedRead, where: DatabaseLocation, stores: DatabaseStores, env: Env
) -> AsyncIterator[None]:
    """Renew the checkpoint of a read even while none of its tasks runs, and delete it at the end.

    A checkpoint that the caller named is left alone.
    """
    if planned.lease.lifetime_ms is None:
        yield
        return
    async with anyio.create_task_group() as tasks:
        for plan in planned.plans[:1]:
            # This pin is never checked: tasks have their own and report the loss of the checkpoint.
            tasks.start_soon(keep_lease, plan, Pin(), stores, env, name="lease")
        yield
        tasks.cancel_scope.cancel()
    await release_lease(where, planned.lease.checkpoint_id, stores, env)


def as_struct(schema: StructType | str) -> StructType:
    """Return columns as Spark's type, from that type or a DDL string: ``"key binary, n bigint"``.

    Raises:
        InvalidRequestError: the text is a type, but not one of rows.
    """
    if isinstance(schema, str):
        parsed = DataType.fromDDL(schema)
        if not isinstance(parsed, StructType):
            raise InvalidRequestError(f"{schema!r} is a single type, not a list of columns such as 'key binary, n int'")
        return parsed
    return schema


def _frame(spark: "SparkSession", plans: tuple[bytes, ...], schema: StructType, columns: ReadColumns) -> "DataFrame":
    if not plans:
        return spark.createDataFrame([], schema)

    def read(numbers: Iterator[Any]) -> Iterator[Any]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                with message_only():
                    yield from read_batches(ReadPlan.decode(plans[number]), columns)

    return spark.range(0, len(plans), 1, len(plans)).mapInArrow(read, schema)


@asynccontextmanager
async def _connected(where: DatabaseLocation, planned: PlannedRead, env: Env) -> AsyncIterator[None]:
    stores = where.connect(env, Metrics(), component="pipeline")
    try:
        async with hold_lease(planned, where, stores, env):
            yield
    finally:
        await stores.aclose()
