"""Export of a database or a part of it to files or to a table that other tools read."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack
from uuid import UUID

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from shale.core.lazy_dataclass import dataclass
from shale.engine.location import DatabaseLocation
from shale.errors import InvalidRequestError, ShaleError
from shale.types import EVERYTHING, KeyRange
from shale_spark.codecs import OnDecodeError
from shale_spark.export_formats import export_error, is_target_missing
from shale_spark.source.options import SparkReadOptions
from shale_spark.source.snapshot_frame import snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MODES = ("error", "overwrite", "append")
_TEXT = ("csv", "json", "text", "xml")


class ExportIncomplete(ShaleError):
    """The target holds another number of rows than were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The result of an export.  ``rows`` were counted while they were written and again in the target."""

    rows: int
    target: str
    format: str


class ExportArguments(TypedDict, total=False):
    """The keywords of ``export``, which documents them; the defaults are those of ``ExportOptions``."""

    format: str
    key_range: KeyRange
    prefix: bytes | None
    checkpoint: UUID | str | None
    schema: StructType | str | None
    value_format: str
    avro_schema: str | None
    on_decode_error: OnDecodeError
    merge_operator: str | None
    partition_by: Sequence[str]
    mode: str
    options: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The keywords of ``export`` with their defaults."""

    format: str = "parquet"
    key_range: KeyRange = EVERYTHING
    prefix: bytes | None = None
    checkpoint: UUID | str | None = None
    schema: StructType | str | None = None
    value_format: str = "binary"
    avro_schema: str | None = None
    on_decode_error: OnDecodeError = OnDecodeError.FAILFAST
    merge_operator: str | None = None
    partition_by: Sequence[str] = ()
    mode: str = "error"
    options: Mapping[str, str] | None = None

    def read_options(self, where: DatabaseLocation) -> SparkReadOptions:
        """Return the options of the read."""
        within = EVERYTHING if self.prefix is None else KeyRange.with_prefix(self.prefix)
        return SparkReadOptions(
            where=where,
            checkpoint=self.checkpoint,
            key_range=self.key_range.intersect(within),
            prefix=self.prefix,
            value_format=self.value_format,
            avro_schema=self.avro_schema,
            on_decode_error=self.on_decode_error,
            merge_operator=self.merge_operator,
        )


def export(
    spark: "SparkSession", where: DatabaseLocation, target: str, **arguments: Unpack[ExportArguments]
) -> ExportResult:
    """Write one state of a database and count the rows that arrived.  Blocks; needs a thread without an event loop.

    Args:
        spark: a classic session or one over Connect.
        where: the database.
        target: a folder or URL that Spark can write; for Iceberg the name of a table, ``catalog.database.table``.
        arguments: keywords:

            ``format``: ``parquet`` (the default), ``orc``, ``json``, ``delta``, ``iceberg``, or any other format that
            Spark can write.
            ``key_range``: the keys to export; ``prefix``: only keys that begin with it.
            ``checkpoint``: the id or name of the checkpoint to read; by default the newest state, including the WAL.
            ``schema``: the columns, by default ``key``, ``value``, ``seq``, ``create_ts`` and ``expire_ts``.
            ``value_format``, ``avro_schema``, ``on_decode_error``, ``merge_operator``: see ``SparkReadOptions``.
            ``partition_by``: columns whose values become folders, or partitions of the table.
            ``mode``: ``error`` (the default) if the target exists, ``overwrite``, or ``append``.
            ``options``: of Spark's writer, for example ``compression``.

    Raises:
        InvalidRequestError: invalid arguments; Spark does not know the format; the target exists.
        LatestRecordMissing, InvalidDbState, CheckpointMissing: there is nothing to read.
        ExportIncomplete: the target does not hold as many rows as were read.
    """
    chosen = ExportOptions(**arguments)
    format_, mode, options = chosen.format, chosen.mode, chosen.options or {}
    if mode not in MODES:
        raise InvalidRequestError(f"mode {mode!r} is none of {', '.join(MODES)}")
    _check_target(format_, target)
    try:
        with snapshot(spark, chosen.read_options(where), chosen.schema) as frame:
            _check_columns(frame, chosen.partition_by)
            before = _count(spark, target, format_, options) if mode == "append" else 0
            observation = Observation("shale-export")
            counted = frame.observe(observation, sql.count(sql.lit(1)).alias("rows"))
            _write(counted, target, format_, partition_by=chosen.partition_by, mode=mode, options=options)
            rows = int(observation.get["rows"])
            found = _count(spark, target, format_, options) - before
    except (PySparkException, Py4JError) as error:
        raise export_error(error, format_, target, spark.version) from error
    if found != rows:
        raise ExportIncomplete(f"{target}: {rows} rows were read from the database, and {found} arrived")
    return ExportResult(rows=rows, target=target, format=format_)


def _check_columns(frame: "DataFrame", partition_by: Sequence[str]) -> None:
    unknown = [name for name in partition_by if name not in frame.columns]
    if unknown:
        raise InvalidRequestError(f"partition_by: there is no column {unknown[0]!r}, but {', '.join(frame.columns)}")


def _check_target(format_: str, target: str) -> None:
    if _is_table(format_) and "/" in target:
        raise InvalidRequestError(f"{target}: format {format_} writes a table, by its name: catalog.database.table")


def _is_table(format_: str) -> bool:
    """Return whether a target is a name in a catalog."""
    return format_ == "iceberg"


def _write(
    frame: "DataFrame",
    target: str,
    format_: str,
    *,
    partition_by: Sequence[str],
    mode: str,
    options: Mapping[str, str],
) -> None:
    if not _is_table(format_):
        # With dynamic partition overwrite Spark keeps folders that get no rows; here the whole target is replaced.
        writer = frame.write.format(format_).mode(mode).options(**{"partitionOverwriteMode": "static", **options})
        (writer.partitionBy(*partition_by) if partition_by else writer).save(target)
        return
    table = frame.writeTo(target).using(format_).options(**dict(options))
    if partition_by:
        first, *more = (sql.col(name) for name in partition_by)
        table = table.partitionedBy(first, *more)
    match mode:
        case "append" if frame.sparkSession.catalog.tableExists(target):
            table.append()
        case "overwrite":
            table.createOrReplace()
        case _:
            table.create()


def _count(spark: "SparkSession", target: str, format_: str, written_with: Mapping[str, str]) -> int:
    """Return the number of rows in the target; 0 if it does not exist."""
    # The options of the writer, such as a header, decide what counts as a row in a text file.
    options = dict(written_with) if format_ in _TEXT else {}
    try:
        # Without multiLine Spark counts the lines of a CSV file, even where a value has line breaks.
        reader = spark.read.format(format_).options(**{"multiLine": str(format_ == "csv").lower(), **options})
        return (spark.table(target) if _is_table(format_) else reader.load(target)).count()
    except PySparkException as error:
        if is_target_missing(error):
            return 0
        raise
