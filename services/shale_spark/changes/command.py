"""``changes``: a database's changes as a streaming DataFrame."""

from typing import TYPE_CHECKING

from shale.engine.settings_values import Duration, parse_duration_s
from shale.engine.where import Where, resolve
from shale_spark.changes.options import CHANGES
from shale_spark.codecs import OnBad
from shale_spark.source.data_source import NAME, register
from shale_spark.source.options import options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def changes(
    spark: "SparkSession",
    where: Where | str,
    *,
    start: str | int = "latest",
    schema: str | None = None,
    value_format: str | None = None,
    avro_schema: str | None = None,
    on_bad: OnBad = OnBad.FAILFAST,
    max_files_per_trigger: int | None = None,
    retain: str | None = None,
    retain_for: Duration = "24h",
    on_gap: str = "fail",
) -> "DataFrame":
    """Follow the changes of a database: one row per put, deletion and merge operand, in the order of their commits.

    Args:
        spark: a session.
        where: the database.
        start: ``latest``, ``earliest`` or a sequence number, for a query without a checkpoint of its own.
        schema: the columns, for values that have some.
        value_format, avro_schema: what values hold; see docs/spark_changes.md.
        on_bad: what becomes of values that cannot be decoded: the query ends, or their columns are null.
        max_files_per_trigger: WAL files per micro-batch.
        retain: keeps what was not read yet from the collector, under this name, which no other query has.
        retain_for: how long it is kept once the query is gone.
        on_gap: ``fail`` if changes are missing, or ``skip`` them.
    """
    register(spark)
    place = where if isinstance(where, Where) else resolve(where)
    chosen = {
        CHANGES: str(start),
        "value_format": value_format,
        "avro_schema": avro_schema,
        "mode": on_bad.value,
        "max_files_per_trigger": None if max_files_per_trigger is None else str(max_files_per_trigger),
        "retain": retain,
        "retain_for": f"{parse_duration_s(retain_for, name='retain_for')}s",
        "on_gap": on_gap,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    reader = spark.readStream.format(NAME).options(**options_of(place), **given)
    return (reader if schema is None else reader.schema(schema)).load()
