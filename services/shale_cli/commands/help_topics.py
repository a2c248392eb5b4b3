"""``shale help``: topics that do not belong to one command."""

import typer

app = typer.Typer(help="Topics.", no_args_is_help=True, rich_markup_mode=None)

EXIT_CODE_MEANINGS = {
    "OK": "success, or a graceful stop",
    "ERROR": "unexpected exception",
    "USAGE": "wrong arguments",
    "NOT_FOUND": "the database, object, checkpoint or job does not exist",
    "NEGATIVE": "a check failed",
    "DATA": "corruption, or an unknown format version",
    "UNAVAILABLE": "the store is unreachable, or a daemon found no database at its start",
    "PANIC": "an invariant of the protocol was violated; nothing more was written",
    "TEMPFAIL": "conflict, timeout or incomplete shutdown; retry",
    "NOPERM": "the store rejected the credentials",
    "CONFIG": "the configuration is invalid",
    "FENCED": "another writer or compactor took over",
    "STORE_UNSAFE": "the store fails the conditional-write check",
    "INTERRUPTED": "stopped by Ctrl-C, or by a second SIGINT",
    "TERMINATED": "stopped by a second SIGTERM, or before the signal handlers were installed",
}


@app.callback()
def _topics() -> None:
    """Topics."""


@app.command("exit-codes", epilog="Example:  shale help exit-codes -o csv")
def exit_codes(context: typer.Context) -> None:
    """List the exit codes of every command and daemon."""
    from shale.service.exit_codes import ExitCode

    items = [{"code": code.value, "name": code.name, "meaning": EXIT_CODE_MEANINGS[code.name]} for code in ExitCode]
    context.obj.output.listing("exit_codes", items, ("code", "name", "meaning"))


@app.command("options", epilog="Example:  shale help options")
def options(context: typer.Context) -> None:
    """List the global options; they may be before or after the noun and the verb."""
    from shale_cli.framework.global_options import OPTIONS
    from shale_cli.framework.help.command_tree import HELP_OPTION

    items = [
        {"option": names, "meaning": meaning} for names, meaning in (*(each.record for each in OPTIONS), HELP_OPTION)
    ]
    context.obj.output.listing("options", items, ("option", "meaning"))


@app.command("man", epilog="Example:  shale help man > ~/.local/share/man/man1/shale.1")
def man() -> None:
    """Print the manual page of all commands."""
    import sys

    from shale_cli.framework.help.manual_page import manual

    sys.stdout.write(manual())
