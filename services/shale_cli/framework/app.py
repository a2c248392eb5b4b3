"""The typer application: one module per noun, with global options for every command."""

import errno
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from shale.errors import InvalidRequestError
from shale.service.exit_codes import ExitCode
from shale_cli.framework import registry
from shale_cli.framework.extensions import extensions
from shale_cli.framework.global_options import OPTIONS, ParsedOptions, global_options, split
from shale_cli.framework.help import help_page
from shale_cli.framework.plain_values import skip_conversions
from shale_cli.framework.session import discard_output, print_error
from shale_cli.framework.usage_errors import check_usage

HELP = "Key-value databases in an object store."
EPILOG = (
    "Daemons, with their own --help: writer, compactor, worker, gc, reader; demo.  "
    "Examples:  shale up -u file:///tmp/db  |  shale kv scan -u s3://bucket/db"
)
OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)

SHOWN = ("--url", "--output")
"""The global options on the first help page, which has to fit a screen; ``shale help options`` lists all."""


class Root(TyperGroup):
    """The group of all commands, with an early syntax check and a short help page."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Report usage errors before typer converts values."""
        if args:
            check_usage(self, ctx, args)
            skip_conversions(self, ctx, args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the most used global options, then the commands."""
        shown = [each.record for each in OPTIONS if each.name in SHOWN]
        more = ("more", "Formats, credentials, settings: shale help options.")
        own = [each.get_help_record(ctx) for each in self.get_params(ctx)]
        with formatter.section("Options"):
            formatter.write_dl([*shown, *(each for each in own if each is not None), more])
        self.format_commands(ctx, formatter)


def make_app(noun: str | None) -> typer.Typer:
    """Return the application with the command ``noun``, or with all commands."""
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
    registry.register(app, noun)
    for name, extension in extensions(app, noun):
        app.add_typer(extension, name=name)
    return app


def _nouns() -> None:
    """Keep typer from turning an application with one command into that command."""


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    found = split(arguments)
    try:
        code = _run(arguments, found)
        sys.stdout.flush()
    except InvalidRequestError as error:
        print_error(str(error))
        return ExitCode.USAGE
    except OSError as error:
        # Stores and input files translate their errors, so these errors come from the output.
        if error.errno not in OUTPUT_ERRORS:
            raise
        discard_output()
        if error.errno != errno.EPIPE:
            print_error(f"cannot write the output: {error.strerror}")
        return ExitCode.ERROR
    return code


def _run(arguments: Sequence[str], found: ParsedOptions) -> int:
    app = make_app(found.noun)
    if help_page.is_wanted(arguments) and help_page.show(app, found.rest):
        return ExitCode.OK
    options = global_options(found)
    try:
        app(found.rest, prog_name="shale", obj=options)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return ExitCode.OK
