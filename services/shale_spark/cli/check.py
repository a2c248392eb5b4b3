"""``shale spark check``: check Spark before a large job."""

from typing import Annotated

import typer

from shale_spark.cli.command import SparkCommand, run
from shale_spark.cli.options import Conf, Master


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check", epilog="Example:  shale spark check --master spark://host:7077 -u s3://bucket/db")(check)


def check(
    context: typer.Context,
    *,
    tasks: Annotated[int, typer.Option(min=1, help="Number of tasks to run.")] = 2,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Try Spark out: the Python and Shale of executors, and their view of the database."""

    def work(command: SparkCommand) -> None:
        from shale_spark.cluster_check import check as ask
        from shale_spark.cluster_check import check_json

        items = [check_json(sight) for sight in ask(command.spark, command.where, tasks=tasks)]
        columns = ("host", "python", "shale", "has_kernels", "manifest_id")
        command.output.note(f"Spark {command.spark.version}")
        command.output.listing("executors", items, columns)

    run(context, master, conf, work)
