"""A database, or a part of it, as files or as a table that other tools read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from shale.engine.where import Where
from shale.errors import InvalidRequestError, ShaleError
from shale.types import EVERYTHING, KeyRange
from shale_spark.codecs import OnBad
from shale_spark.formats import explained, names_nothing
from shale_spark.source.frame import snapshot
from shale_spark.source.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MODES = ("error", "overwrite", "append")
_TEXT = ("csv", "json", "text", "xml")


class ExportIncomplete(ShaleError):
    """What was written is not what was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What an export wrote.  ``rows`` were counted while they were written and again in the target."""

    rows: int
    target: str
    format: str


def export(
    spark: "SparkSession",
    where: Where,
    target: str,
    *,
    format: str = "parquet",  # noqa: A002 - Spark's name
    key_range: KeyRange = EVERYTHING,
    prefix: bytes | None = None,
    checkpoint: UUID | str | None = None,
    schema: StructType | str | None = None,
    value_format: str = "binary",
    avro_schema: str | None = None,
    on_bad: OnBad = OnBad.FAILFAST,
    merge_operator: str | None = None,
    partition_by: Sequence[str] = (),
    mode: str = "error",
    options: Mapping[str, str] | None = None,
) -> ExportResult:
    """Write one state of a database, and count what arrived.  Blocks; call it from a thread without an event loop.

    Args:
        spark: a classic session or one over Connect.
        where: the database.
        target: a folder or URL that Spark can write; for Iceberg the name of a table, ``catalog.database.table``.
        format: ``parquet``, ``orc``, ``json``, ``delta``, ``iceberg``, or whatever else Spark can write.
        key_range, prefix: which keys.
        checkpoint: which state, by its id or name; by default the newest, with what the WAL holds.
        schema: the columns, by default ``key``, ``value``, ``seq``, ``create_ts`` and ``expire_ts``.
        value_format, avro_schema, on_bad, merge_operator: see ``ReadOptions``.
        partition_by: columns whose values become folders, or partitions of the table.
        mode: ``error`` if something is there, ``overwrite``, or ``append``.
        options: of Spark's writer, for example ``compression``.

    Raises:
        InvalidRequestError: impossible arguments; Spark does not know the format; something is there already.
        LatestRecordMissing, InvalidDbState, CheckpointMissing: there is nothing to read.
        ExportIncomplete: the target does not hold as many rows as were read.
    """
    if mode not in MODES:
        raise InvalidRequestError(f"mode {mode!r} is none of {', '.join(MODES)}")
    _check_target(format, target)
    read = ReadOptions(
        where=where,
        checkpoint=checkpoint,
        key_range=key_range if prefix is None else key_range.intersect(KeyRange.with_prefix(prefix)),
        prefix=prefix,
        value_format=value_format,
        avro_schema=avro_schema,
        on_bad=on_bad,
        merge_operator=merge_operator,
    )
    try:
        with snapshot(spark, read, schema) as frame:
            _check_columns(frame, partition_by)
            before = _count(spark, target, format, options or {}) if mode == "append" else 0
            observation = Observation("shale-export")
            counted = frame.observe(observation, sql.count(sql.lit(1)).alias("rows"))
            _write(counted, target, format, partition_by=partition_by, mode=mode, options=options or {})
            rows = int(observation.get["rows"])
            found = _count(spark, target, format, options or {}) - before
    except (PySparkException, Py4JError) as error:
        raise explained(error, format, target, spark.version) from error
    if found != rows:
        raise ExportIncomplete(f"{target}: {rows} rows were read from the database, and {found} arrived")
    return ExportResult(rows=rows, target=target, format=format)


def _check_columns(frame: "DataFrame", partition_by: Sequence[str]) -> None:
    unknown = [name for name in partition_by if name not in frame.columns]
    if unknown:
        raise InvalidRequestError(f"partition_by: there is no column {unknown[0]!r}, but {', '.join(frame.columns)}")


def _check_target(format_: str, target: str) -> None:
    if _is_table(format_) and "/" in target:
        raise InvalidRequestError(f"{target}: format {format_} writes a table, by its name: catalog.database.table")


def _is_table(format_: str) -> bool:
    """Whether a target is a name in a catalog."""
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
        # A session may have it that folders which get no rows stay; here overwriting means all of the target.
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
    """The rows of the target; none if it is not there."""
    # What a row is in a file of text, a header for one, is said by the options that it was written with.
    options = dict(written_with) if format_ in _TEXT else {}
    try:
        # Without the option a line of a CSV file is a row, also where a value has line breaks.
        reader = spark.read.format(format_).options(**{"multiLine": str(format_ == "csv").lower(), **options})
        return (spark.table(target) if _is_table(format_) else reader.load(target)).count()
    except PySparkException as error:
        if names_nothing(error):
            return 0
        raise
