"""``shale spark changes``: the WAL as lines, or in any format that Spark writes."""

import sys
import tempfile
from typing import TYPE_CHECKING, Annotated

import typer

from shale_spark.cli.command import SparkCommand, run
from shale_spark.cli.options import AvroSchema, Conf, Master, ValueFormat, text_or_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from shale_cli.framework.output.writer import Output

_WORKER_IS_LATE = "Python worker failed to connect back"
_STARTS_MAX = 3


def register(app: typer.Typer) -> None:
    """Add the command."""
    examples = (
        "shale spark changes --start earliest --once -u s3://bucket/db  |  "
        "shale spark changes --to s3a://lake/audit --offsets s3a://lake/_audit --retain audit"
    )
    app.command("changes", epilog=f"Examples:  {examples}")(changes)


def changes(
    context: typer.Context,
    *,
    start: Annotated[
        str | None, typer.Option(help="latest, earliest or a sequence number; used while --offsets is empty.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="A folder that Spark writes; default: lines on stdout.")] = None,
    format_: Annotated[str, typer.Option("--format", help="With --to: parquet, json, delta, …")] = "parquet",
    offsets: Annotated[str | None, typer.Option(help="A folder that stores the position; required with --to.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when caught up; without it, stop with Ctrl-C.")] = False,
    schema: Annotated[str | None, typer.Option(help="Columns, as SQL: 'key string, op string, n int'.")] = None,
    value_format: ValueFormat = None,
    avro_schema: AvroSchema = None,
    permissive: Annotated[bool, typer.Option("--permissive", help="Nulls for values that cannot be decoded.")] = False,
    retain: Annotated[str | None, typer.Option(help="Keep unread changes from the collector, under this name.")] = None,
    retain_for: Annotated[str, typer.Option(help="How long --retain keeps them after the query has gone.")] = "24h",
    skip_gaps: Annotated[bool, typer.Option("--skip-gaps", help="Go on where changes are missing.")] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Follow every put, deletion and merge, each once and in commit order."""

    def work(command: SparkCommand) -> None:
        from shale.errors import InvalidRequestError
        from shale_spark.changes.dataframe import changes as follow
        from shale_spark.codecs import OnDecodeError

        if to is not None and offsets is None:
            raise InvalidRequestError("--to needs --offsets: a folder that stores the position")
        stream = follow(
            command.spark,
            command.where,
            start=start or "latest",
            schema=schema,
            value_format=value_format,
            avro_schema=text_or_file(avro_schema, "--avro-schema"),
            on_decode_error=OnDecodeError.PERMISSIVE if permissive else OnDecodeError.FAILFAST,
            retain=retain,
            retain_for=retain_for,
            on_gap="skip" if skip_gaps else "fail",
        )
        writer = stream.writeStream
        printer = LinePrinter(command.output)
        writer = writer.foreachBatch(printer.write) if to is None else writer.format(format_).option("path", to)
        with tempfile.TemporaryDirectory(prefix="shale-changes-") as temporary:
            writer = writer.option("checkpointLocation", offsets or temporary)
            run_query((writer.trigger(availableNow=True) if once else writer).start, printer)

    run(context, master, conf, work, shows_stages=False)


def run_query(start: "Callable[[], StreamingQuery]", printer: "LinePrinter") -> None:
    """Run a query until it ends; start it again if Spark's Python worker was not ready within 10 s, as on a busy host.

    A query whose first batch has begun is not started again: its lines would be printed twice.

    Raises:
        StreamingQueryException: the query failed; it stops in any case.
    """
    from pyspark.errors import StreamingQueryException

    for attempt in range(1, _STARTS_MAX + 1):
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as failed:
            has_begun = printer.has_begun or query.lastProgress is not None
            is_late = _WORKER_IS_LATE in str(failed) and not has_begun
            if attempt == _STARTS_MAX or not is_late:
                raise
        else:
            return
        finally:
            query.stop()


class LinePrinter:
    """Writes the rows of micro-batches, one line each, in their order."""

    def __init__(self, output: "Output") -> None:
        self._output = output
        self.has_begun = False
        """Whether a batch has begun; some of its lines may be printed."""

    def write(self, batch: "DataFrame", _batch_id: int) -> None:
        """Write one micro-batch."""
        from shale_cli.framework.output.writer import Format, write_line, write_text
        from shale_spark.cli.change_output import as_json, as_text

        self.has_begun = True
        for row in batch.toLocalIterator():
            if self._output.format is Format.TABLE:
                write_text("  ".join(as_text(self._output, value) for value in row))
            else:
                write_line(as_json(row))
        # Flush, so that the reader of a pipe does not wait for the next change.
        sys.stdout.flush()
