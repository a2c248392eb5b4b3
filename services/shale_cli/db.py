"""``shale db``: a database as a whole."""

import typer

from shale_cli import db_destroy
from shale_cli.session import Session, run
from shale_cli.verify import EXAMPLES, verify

app = typer.Typer(help="A database as a whole.", no_args_is_help=True, rich_markup_mode=None)


app.command("verify", epilog=EXAMPLES.replace("shale verify", "shale db verify"))(verify)


@app.callback()
def _nouns() -> None:
    """A database as a whole."""


@app.command(epilog="Examples:  shale db info -u s3://bucket/db  |  shale db info -u s3://bucket/db -o json")
def info(context: typer.Context) -> None:
    """Show its shape: L0s and runs as a tree, sizes, epochs, checkpoints, lag, databases it borrows from."""

    async def work(session: Session) -> None:
        from shale_cli.db_info import info_json, look
        from shale_cli.db_picture import picture
        from shale_cli.output import write_text

        shape = await look(session)
        data = info_json(shape)
        if session.output.is_table and not session.output.columns:
            for line in picture(shape, session.output):
                write_text(line)
        else:
            session.output.record(data, list(data.items()))

    run(context, work)


@app.command(epilog="Examples:  shale db size -u s3://bucket/db  |  shale db size -u s3://bucket/db -o csv")
def size(context: typer.Context) -> None:
    """Count objects and bytes of each kind, by listing them all; and what of the SSTs is in use.

    What is not in use is garbage, or kept by a checkpoint, or not committed yet.
    """

    async def work(session: Session) -> None:
        from shale_cli.db_size import COLUMNS, count_objects

        items = await count_objects(session)
        session.output.listing("kinds", items, COLUMNS)

    run(context, work)


app.command(epilog="Examples:  shale db destroy -u s3://bucket/db  |  shale db destroy --soft --yes -u s3://bucket/db")(
    db_destroy.destroy
)
