"""``shale db``: information about a database, and its deletion."""

import typer

from shale_cli.commands.db import destroy
from shale_cli.commands.verify import EXAMPLES, verify
from shale_cli.framework.session import CliSession, run

app = typer.Typer(help="Inspect, verify or destroy a database.", no_args_is_help=True, rich_markup_mode=None)


app.command("verify", epilog=EXAMPLES.replace("shale verify", "shale db verify"))(verify)


@app.callback()
def _nouns() -> None:
    """Inspect, verify or destroy a database."""


@app.command(epilog="Examples:  shale db info -u s3://bucket/db  |  shale db info -u s3://bucket/db -o json")
def info(context: typer.Context) -> None:
    """Show L0s and runs as a tree, with sizes, epochs, checkpoints, lag and the parents of a clone."""

    async def work(session: CliSession) -> None:
        from shale_cli.commands.db.info import db_info_json, read_db_info
        from shale_cli.commands.db.tree_view import render_tree
        from shale_cli.framework.output.writer import write_text

        shape = await read_db_info(session)
        data = db_info_json(shape)
        if session.output.is_table and not session.output.columns:
            for line in render_tree(shape, session.output):
                write_text(line)
        else:
            session.output.record(data, list(data.items()))

    run(context, work)


@app.command(epilog="Examples:  shale db size -u s3://bucket/db  |  shale db size -u s3://bucket/db -o csv")
def size(context: typer.Context) -> None:
    """List all objects; count objects and bytes of each kind, and the SSTs in use.

    SSTs that are not in use are garbage, kept by a checkpoint, or not committed yet.
    """

    async def work(session: CliSession) -> None:
        from shale_cli.commands.db.size import COLUMNS, count_objects

        items = await count_objects(session)
        session.output.listing("kinds", items, COLUMNS)

    run(context, work)


app.command(epilog="Examples:  shale db destroy -u s3://bucket/db  |  shale db destroy --soft --yes -u s3://bucket/db")(
    destroy.destroy
)
