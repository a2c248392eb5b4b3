"""``changes``: the changes of a database as a streaming DataFrame."""

from typing import TYPE_CHECKING, TypedDict, Unpack

from shale.core.settings_values import Duration, parse_duration_s
from shale.engine.location import DatabaseLocation, resolve
from shale_spark.changes.options import CHANGES
from shale_spark.codecs import OnDecodeError
from shale_spark.source.data_source import NAME, register
from shale_spark.source.options import where_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ChangesArguments(TypedDict, total=False):
    """The keywords of ``changes``, which documents them."""

    start: str | int
    schema: str | None
    value_format: str | None
    avro_schema: str | None
    on_decode_error: OnDecodeError
    max_files_per_trigger: int | None
    retain: str | None
    retain_for: Duration
    on_gap: str


def changes(spark: "SparkSession", where: DatabaseLocation | str, **arguments: Unpack[ChangesArguments]) -> "DataFrame":
    """Follow the changes of a database: one row per put, deletion and merge operand, in commit order.

    Args:
        spark: a session.
        where: the database.
        arguments: keywords:

            ``start``: ``latest`` (the default), ``earliest`` or a sequence number, for a query without a checkpoint.
            ``schema``: the columns, for values that have some.
            ``value_format``, ``avro_schema``: the format of values; see docs/how-to/spark-changes.md.
            ``on_decode_error``: whether a value that cannot be decoded ends the query (the default) or gets null
            columns.
            ``max_files_per_trigger``: WAL files per micro-batch.
            ``retain``: keeps unread changes from the collector under this name, which no other query may use.
            ``retain_for``: how long they are kept once the query is gone; by default 24 hours.
            ``on_gap``: ``fail`` (the default) if changes are missing, or ``skip`` them.
    """
    register(spark)
    place = where if isinstance(where, DatabaseLocation) else resolve(where)
    schema = arguments.get("schema")
    files_max = arguments.get("max_files_per_trigger")
    chosen = {
        CHANGES: str(arguments.get("start", "latest")),
        "value_format": arguments.get("value_format"),
        "avro_schema": arguments.get("avro_schema"),
        "mode": arguments.get("on_decode_error", OnDecodeError.FAILFAST).value,
        "max_files_per_trigger": None if files_max is None else str(files_max),
        "retain": arguments.get("retain"),
        "retain_for": f"{parse_duration_s(arguments.get('retain_for', '24h'), name='retain_for')}s",
        "on_gap": arguments.get("on_gap", "fail"),
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    reader = spark.readStream.format(NAME).options(**where_options(place), **given)
    return (reader if schema is None else reader.schema(schema)).load()
