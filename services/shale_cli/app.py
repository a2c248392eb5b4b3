"""The typer application: one module for every noun, behind the options that every command takes."""

import errno
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from shale.errors import InvalidRequestError
from shale.service.exit_codes import ExitCode
from shale_cli import commands, help_page
from shale_cli.extensions import extensions
from shale_cli.global_options import OPTIONS, Split, global_options, split
from shale_cli.session import complain, discard_output
from shale_cli.syntax import require_syntax

HELP = "Key-value databases that live entirely in an object store."
EPILOG = (
    "Processes, each with its own --help: writer, compactor, worker, gc, reader.  The main job on real data: demo.  "
    "Examples:  shale up -u file:///tmp/db  |  shale kv scan -u s3://bucket/db"
)
OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)

SHOWN = ("--url", "--output", "--version")
"""What the first help page tells of the global options, to fit a screen; ``shale help options`` has them all."""


class Root(TyperGroup):
    """The group of all commands: their syntax is checked first, and their help is short."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse a slip of the finger before anything is read as a value."""
        if args:
            require_syntax(self, ctx, args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options that everybody needs, then the commands."""
        shown = [each.record for each in OPTIONS if each.name in SHOWN]
        more = ("more", "Formats, credentials, configuration: shale help options.")
        own = [each.get_help_record(ctx) for each in self.get_params(ctx)]
        with formatter.section("Options"):
            formatter.write_dl([*shown, *(each for each in own if each is not None), more])
        self.format_commands(ctx, formatter)


def make_app(noun: str | None) -> typer.Typer:
    """The application, with the command that ``noun`` names, or with all of them."""
    app = typer.Typer(
        name="shale",
        cls=Root,
        help=HELP,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["--help", "-h"]},
        epilog=EPILOG,
    )
    app.callback()(_nouns)
    commands.register(app, noun)
    for name, extension in extensions(app, noun):
        app.add_typer(extension, name=name)
    return app


def _nouns() -> None:
    """Without this, typer would take an application with one command for the command."""


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    found = split(arguments)
    try:
        code = _run(arguments, found)
        sys.stdout.flush()
    except InvalidRequestError as error:
        complain(str(error))
        return ExitCode.USAGE
    except OSError as error:
        # Stores and files translate their own: these are of the place where the output goes.
        if error.errno not in OUTPUT_ERRORS:
            raise
        discard_output()
        if error.errno != errno.EPIPE:
            complain(f"cannot write the output: {error.strerror}")
        return ExitCode.ERROR
    return code


def _run(arguments: Sequence[str], found: Split) -> int:
    app = make_app(found.noun)
    if help_page.is_wanted(arguments) and help_page.show(app, found.rest):
        return ExitCode.OK
    options = global_options(found)
    try:
        app(found.rest, prog_name="shale", obj=options)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return ExitCode.OK
