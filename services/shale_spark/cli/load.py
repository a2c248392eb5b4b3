"""``shale spark load``: files, or anything else that Spark reads, into a database."""

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from shale_spark.cli.command import SparkCommand, run
from shale_spark.cli.options import AvroSchema, Conf, Master, ValueFormat, pairs, text_or_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class LoadModeOption(StrEnum):
    """Into a new database, or into an existing one."""

    CREATE = "create"
    APPEND = "append"


class DuplicatesOption(StrEnum):
    """What to do with a key that occurs twice."""

    ERROR = "error"
    LAST = "last"


def register(app: typer.Typer) -> None:
    """Add the command."""
    example = "shale spark load s3a://lake/orders --key id --value-format json -u s3://bucket/orders"
    app.command("load", epilog=f"Example:  {example}")(load)


def load(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="A file or folder, or a table with --format table.")],
    *,
    format_: Annotated[str, typer.Option("--format", help="parquet, csv, json, orc, table, …")] = "parquet",
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Of Spark's reader, as header=true.")
    ] = None,
    schema: Annotated[str | None, typer.Option(help="Columns of the source, as SQL: 'id string, n int'.")] = None,
    key: Annotated[str, typer.Option(help="The column of keys: binary or string.")] = "key",
    value: Annotated[str | None, typer.Option(help="The column of values, or with a format several, as a,b.")] = None,
    value_format: ValueFormat = None,
    avro_schema: AvroSchema = None,
    mode: Annotated[
        LoadModeOption, typer.Option(help="Into a new database, or into an existing one.")
    ] = LoadModeOption.CREATE,
    fence: Annotated[bool, typer.Option("--fence", help="append: take over from a running writer.")] = False,
    duplicates: Annotated[DuplicatesOption, typer.Option(help="A key that occurs twice.")] = DuplicatesOption.ERROR,
    order_by: Annotated[str | None, typer.Option(help="last: the column whose greatest value wins.")] = None,
    ttl: Annotated[str | None, typer.Option(help="Lifetime of all rows, for example 30d.")] = None,
    expire_at: Annotated[str | None, typer.Option(help="The column with the expiry of a row.")] = None,
    dead_letters: Annotated[str | None, typer.Option(help="A folder for rows that cannot be stored.")] = None,
    compression: Annotated[str, typer.Option(help="none, snappy, zlib, lz4 or zstd.")] = "none",
    partitions: Annotated[int | None, typer.Option(min=1, help="Tasks that write; by default by size.")] = None,
    sst_bytes: Annotated[str, typer.Option(help="Size of one SST.")] = "256MiB",
    block_size: Annotated[str, typer.Option(help="Size of one block.")] = "4KiB",
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Load rows in bulk: sorted SSTs and one commit, so that all of them appear at once or none."""

    def work(command: SparkCommand) -> None:
        from shale_spark.load import load as load_rows

        result = load_rows(
            _frame(command.spark, source, format_, pairs(option, "--option"), schema),
            command.where,
            key=key,
            value=_names(value),
            value_format=value_format,
            avro_schema=text_or_file(avro_schema, "--avro-schema"),
            mode=mode.value,
            fence=fence,
            duplicates=duplicates.value,
            order_by=order_by,
            ttl=ttl,
            expire_at=expire_at,
            dead_letters=dead_letters,
            compression=compression,
            partitions=partitions,
            sst_bytes=sst_bytes,
            block_size=block_size,
        )
        data = asdict(result)
        command.output.record(data, list(data.items()))

    run(context, master, conf, work)


def _frame(
    spark: "SparkSession", source: str, format_: str, options: dict[str, str], schema: str | None
) -> "DataFrame":
    if format_ == "table":
        return spark.table(source)
    reader = spark.read.format(format_).options(**options)
    return (reader if schema is None else reader.schema(schema)).load(source)


def _names(value: str | None) -> str | list[str] | None:
    if value is None or "," not in value:
        return value
    return [name.strip() for name in value.split(",")]
