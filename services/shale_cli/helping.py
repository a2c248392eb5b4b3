"""``shale help``: what does not belong to one command."""

import typer

app = typer.Typer(help="Topics.", no_args_is_help=True, rich_markup_mode=None)

_MEANINGS = {
    "OK": "done, or a graceful stop",
    "ERROR": "unexpected exception",
    "USAGE": "wrong arguments",
    "NOT_FOUND": "the database, object, checkpoint or job is not there",
    "NEGATIVE": "a check failed",
    "DATA": "corruption, or an unknown format version",
    "UNAVAILABLE": "the store cannot be reached, or at the start of a daemon: no database there yet",
    "PANIC": "an invariant of the protocol broke; nothing more was written",
    "TEMPFAIL": "conflict or timeout, or a shutdown was incomplete; try again",
    "NOPERM": "the credentials were refused",
    "CONFIG": "the configuration is invalid",
    "FENCED": "another writer or compactor took over",
    "STORE_UNSAFE": "the store fails the conditional-write check",
    "INTERRUPTED": "stopped by Ctrl-C, or by a second SIGINT",
    "TERMINATED": "a second SIGTERM, or killed before handlers were there",
}


@app.callback()
def _topics() -> None:
    """Topics."""


@app.command("exit-codes", epilog="Example:  shale help exit-codes -o csv")
def exit_codes(context: typer.Context) -> None:
    """List the exit codes of every command and daemon."""
    from shale.service.exit_codes import ExitCode

    items = [{"code": code.value, "name": code.name, "meaning": _MEANINGS[code.name]} for code in ExitCode]
    context.obj.output.listing("exit_codes", items, ("code", "name", "meaning"))


@app.command("options", epilog="Example:  shale help options")
def options(context: typer.Context) -> None:
    """List the options that every command takes; they may stand before or behind the noun and the verb."""
    from shale_cli.command_tree import HELP_OPTION
    from shale_cli.global_options import OPTIONS

    items = [
        {"option": names, "meaning": meaning} for names, meaning in (*(each.record for each in OPTIONS), HELP_OPTION)
    ]
    context.obj.output.listing("options", items, ("option", "meaning"))


@app.command("man", epilog="Example:  shale help man > ~/.local/share/man/man1/shale.1")
def man() -> None:
    """Print the manual page of all commands."""
    import sys

    from shale_cli.manual import manual

    sys.stdout.write(manual())
