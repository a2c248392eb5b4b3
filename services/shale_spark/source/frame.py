"""A DataFrame of one state that belongs to one piece of work: planned in the driver, and let go when the work is done.

``format("shale")`` is planned in a process of Spark's that hears nothing of the end of a query.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType, StructType

from shale.engine.where import Where
from shale.env import Env
from shale.errors import InvalidRequestError, ShaleError
from shale.protocol.checkpoints import release_checkpoints
from shale.protocol.manifest_store import ManifestStore
from shale.telemetry.metrics import Metrics
from shale_spark.one_line import one_line
from shale_spark.source.batches import batches, columns_of, wanted_keys
from shale_spark.source.columns import Columns, default_schema
from shale_spark.source.options import ReadOptions
from shale_spark.source.plan import Lease, ReadPlan
from shale_spark.source.planning import plan_read
from shale_spark.tasks import run_async

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def snapshot(
    spark: "SparkSession", options: ReadOptions, schema: StructType | str | None = None
) -> Iterator["DataFrame"]:
    """A DataFrame that shows the same state whenever it is used; its checkpoint is deleted at the end.

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
    try:
        yield _frame(spark, tuple(plan.encode() for plan in planned.plans), columns, of_rows)
    finally:
        if planned.lease.lifetime_ms is not None:
            # Whoever is in trouble already has another error to tell; the checkpoint expires.
            with suppress(ShaleError):
                run_async(partial(_release, options.where, planned.lease))


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


async def _release(where: Where, lease: Lease, env: Env) -> None:
    stores = where.connect(env, Metrics(), component="pipeline")
    try:
        stored = await ManifestStore(stores.main, where.root, env).load()
        await release_checkpoints(stored, [lease.checkpoint_id])
    finally:
        await stores.aclose()
