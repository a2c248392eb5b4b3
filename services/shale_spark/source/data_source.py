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
from shale_spark.one_line import one_line
from shale_spark.source.batches import batches, columns_of, wanted_keys
from shale_spark.source.columns import Columns, default_schema
from shale_spark.source.filters import push_filters
from shale_spark.source.options import ReadOptions
from shale_spark.source.plan import ReadPlan
from shale_spark.source.planning import plan_read
from shale_spark.tasks import run_async

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "shale"
_KNOWN = "spark.shale.dataSource"


class ShaleDataSource(DataSource):
    """A database; ``ReadOptions`` says which options there are."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` calls it."""
        return NAME

    @one_line()
    def schema(self) -> str:
        """The columns, where nobody names them."""
        if is_changes(self.options):
            return changes_schema(ChangesOptions.parse(self.options).value_format)
        return default_schema(ReadOptions.parse(self.options).value_format)

    @one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        options = ReadOptions.parse(self.options)
        # Spark calls `pushFilters` of whoever has it, and fails if its own setting does not allow that.
        return (FilteringReader if options.pushdown else Reader)(options, schema)

    @one_line()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the interface's name
        """Changes as they are written (docs/spark_changes.md)."""
        options = ChangesOptions.parse(self.options)
        try:
            from shale_spark.changes.reader import ChangesReader
        except ImportError as error:
            raise InvalidRequestError("streams of changes need pyspark 4.2 or newer") from error
        return ChangesReader(options, schema)

    @one_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002 - Spark's names
        """Rows through a writer daemon, or a new database (docs/spark_load.md)."""
        from shale_spark.load.data_source import make_writer

        return make_writer(self.options, overwrite=overwrite)


class Reader(DataSourceReader):
    """Reads what the options say; Spark applies all filters afterwards."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._wanted = wanted_keys(options)
        self._columns()

    @one_line()
    def partitions(self) -> Sequence[InputPartition]:
        """One per task; called in the driver, each time a query is planned."""
        planned = run_async(lambda env: plan_read(self._options, self._wanted, env))
        return [PlannedPartition(plan) for plan in planned.plans] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of one partition; called in a task."""
        if isinstance(partition, PlannedPartition):
            with one_line():
                yield from batches(partition.plan, self._columns())

    def _columns(self) -> Columns:
        return columns_of(self._schema, self._options)


class FilteringReader(Reader):
    """Reads only keys that can satisfy the filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - the interface's name
        """Take what is said about the key; gives back what Spark still has to apply."""
        key_is_text = "key" in self._schema.names and isinstance(self._schema["key"].dataType, StringType)
        self._wanted, left = push_filters(filters, self._wanted, key_is_text=key_is_text)
        return left


class PlannedPartition(InputPartition):
    """The plan of one task, as bytes."""

    def __init__(self, plan: ReadPlan) -> None:
        super().__init__(plan.encode())

    @property
    def plan(self) -> ReadPlan:
        """The plan again."""
        return ReadPlan.decode(self.value)


def register(spark: "SparkSession") -> None:
    """Make ``format("shale")`` known to a session; Spark complains of whoever says it twice."""
    if spark.conf.get(_KNOWN, "") != "true":
        spark.dataSource.register(ShaleDataSource)
        spark.conf.set(_KNOWN, "true")
