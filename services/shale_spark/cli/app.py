"""The noun ``spark``.  This module does not import Spark, so that ``--help`` works without it, and at once."""

import typer

from shale_spark.cli import HELP, changes, check, compact, export, load, scrub

app = typer.Typer(
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _jobs() -> None:
    """Bulk work as Spark jobs."""


for command in (compact, load, export, changes, scrub, check):
    command.register(app)
