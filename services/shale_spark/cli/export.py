"""``shale spark export``: a database as files or as a table."""

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from shale_spark.cli.command import SparkCommand, run
from shale_spark.cli.options import AvroSchema, Conf, Master, ValueFormat, pairs, text_or_file

if TYPE_CHECKING:
    from shale.types import KeyRange
    from shale_cli.framework.output.writer import Output


class ExportMode(StrEnum):
    """What to do if the target exists."""

    ERROR = "error"
    OVERWRITE = "overwrite"
    APPEND = "append"


def register(app: typer.Typer) -> None:
    """Add the command."""
    example = (
        "shale spark export s3a://lake/orders --value-format json --schema 'key string, n int' -u s3://bucket/orders"
    )
    app.command("export", epilog=f"Example:  {example}")(export)


def export(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="A folder or URL that Spark writes, or the name of a table.")],
    *,
    format_: Annotated[str, typer.Option("--format", help="parquet, orc, json, delta, iceberg, …")] = "parquet",
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Of Spark's writer.")
    ] = None,
    schema: Annotated[str | None, typer.Option(help="Columns, as SQL: 'key string, amount double'.")] = None,
    value_format: ValueFormat = None,
    avro_schema: AvroSchema = None,
    permissive: Annotated[bool, typer.Option("--permissive", help="Nulls for values that cannot be decoded.")] = False,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin with this.")] = None,
    start: Annotated[str | None, typer.Option(help="The first key, inclusive.")] = None,
    stop: Annotated[str | None, typer.Option(help="The last key, exclusive.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Which checkpoint, its id or name; default: the newest state.")
    ] = None,
    merge_operator: Annotated[str | None, typer.Option(help="A registered name or module:attribute.")] = None,
    partition_by: Annotated[str | None, typer.Option(help="Columns that become folders: a,b.")] = None,
    mode: Annotated[ExportMode, typer.Option(help="If the target exists.")] = ExportMode.ERROR,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Write one state of a database with Spark's own writers, and count the rows that arrived."""

    def work(command: SparkCommand) -> None:
        from shale_spark.codecs import OnDecodeError
        from shale_spark.export import export as export_rows

        result = export_rows(
            command.spark,
            command.where,
            target,
            format=format_,
            key_range=_key_range(command.output, start, stop),
            prefix=None if prefix is None else command.output.parse(prefix),
            checkpoint=checkpoint,
            schema=schema,
            value_format=value_format or "binary",
            avro_schema=text_or_file(avro_schema, "--avro-schema"),
            on_decode_error=OnDecodeError.PERMISSIVE if permissive else OnDecodeError.FAILFAST,
            merge_operator=merge_operator,
            partition_by=tuple(name.strip() for name in (partition_by or "").split(",") if name.strip()),
            mode=mode.value,
            options=pairs(option, "--option"),
        )
        data = asdict(result)
        command.output.record(data, list(data.items()))

    run(context, master, conf, work)


def _key_range(output: "Output", start: str | None, stop: str | None) -> "KeyRange":
    from shale.types import KeyRange

    first, end = (None if text is None else output.parse(text) for text in (start, stop))
    return KeyRange.half_open(first, end)
