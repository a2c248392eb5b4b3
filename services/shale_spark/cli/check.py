"""``shale spark check``: does Spark work here, before anything large is started."""

from typing import Annotated

import typer

from shale_spark.cli.options import Conf, Master
from shale_spark.cli.running import SparkCommand, run


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check", epilog="Example:  shale spark check --master spark://host:7077 -u s3://bucket/db")(check)


def check(
    context: typer.Context,
    *,
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks are asked; more than one core answers.")] = 2,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Try Spark out: what executors have of Python and Shale, and what they see of the database."""

    def work(command: SparkCommand) -> None:
        from shale_spark.check import check as ask
        from shale_spark.check import check_json

        items = [check_json(sight) for sight in ask(command.spark, command.where, tasks=tasks)]
        columns = ("host", "python", "shale", "has_kernels", "manifest_id")
        command.output.note(f"Spark {command.spark.version}")
        command.output.listing("executors", items, columns)

    run(context, master, conf, work)
