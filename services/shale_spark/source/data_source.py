"""The data source ``shale`` of PySpark's Python Data Source API."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StringType, StructType

from shale.errors import InvalidRequestError
from shale_spark.changes.columns import changes_schema
from shale_spark.changes.options import ChangesOptions, is_changes
from shale_spark.errors import message_only
from shale_spark.source.columns import ReadColumns, columns_of, default_schema
from shale_spark.source.filters import push_filters, requested_keys
from shale_spark.source.options import SparkReadOptions
from shale_spark.source.plan_reader import read_batches
from shale_spark.source.planner import plan_read
from shale_spark.source.read_plan import ReadPlan
from shale_spark.tasks import run_async

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "shale"
_KNOWN = "spark.shale.dataSource"


class ShaleDataSource(DataSource):
    """A database; ``SparkReadOptions`` documents the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return NAME

    @message_only()
    def schema(self) -> str:
        """Return the columns of a read without an explicit schema."""
        if is_changes(self.options):
            return changes_schema(ChangesOptions.parse(self.options).value_format)
        return default_schema(SparkReadOptions.parse(self.options).value_format)

    @message_only()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader."""
        options = SparkReadOptions.parse(self.options)
        # Spark calls `pushFilters` of every reader that has it, and fails if its own setting forbids pushdown.
        return (FilteringBatchReader if options.pushdown else BatchReader)(options, schema)

    @message_only()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the interface's name
        """Return a reader of changes (docs/how-to/spark-changes.md)."""
        options = ChangesOptions.parse(self.options)
        try:
            from shale_spark.changes.reader import ChangesReader
        except ImportError as error:
            raise InvalidRequestError("streams of changes need pyspark 4.2 or newer") from error
        return ChangesReader(options, schema)

    @message_only()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002 - Spark's names
        """Return a writer of rows through a writer daemon, or into a new database (docs/how-to/spark-load.md)."""
        from shale_spark.load.data_source_writer import make_writer

        return make_writer(self.options, overwrite=overwrite)


class BatchReader(DataSourceReader):
    """Reads what the options say; Spark applies all filters afterwards."""

    def __init__(self, options: SparkReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._wanted = requested_keys(options)
        self._columns()

    @message_only()
    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per task; called in the driver, each time a query is planned."""
        planned = run_async(lambda env: plan_read(self._options, self._wanted, env))
        return [PlannedPartition(plan) for plan in planned.plans] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of one partition; called in a task."""
        if isinstance(partition, PlannedPartition):
            with message_only():
                yield from read_batches(partition.plan, self._columns())

    def _columns(self) -> ReadColumns:
        return columns_of(self._schema, self._options)


class FilteringBatchReader(BatchReader):
    """Reads only keys that can satisfy the filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - the interface's name
        """Apply the filters on the key; return those that Spark still has to apply."""
        key_is_text = "key" in self._schema.names and isinstance(self._schema["key"].dataType, StringType)
        self._wanted, left = push_filters(filters, self._wanted, key_is_text=key_is_text)
        return left


class PlannedPartition(InputPartition):
    """The plan of one task, as bytes."""

    def __init__(self, plan: ReadPlan) -> None:
        super().__init__(plan.encode())

    @property
    def plan(self) -> ReadPlan:
        """The decoded plan."""
        return ReadPlan.decode(self.value)


def register(spark: "SparkSession") -> None:
    """Register ``format("shale")`` with a session, once; Spark warns of a second registration."""
    if spark.conf.get(_KNOWN, "") != "true":
        spark.dataSource.register(ShaleDataSource)
        spark.conf.set(_KNOWN, "true")
