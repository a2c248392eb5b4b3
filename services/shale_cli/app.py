"""The typer application: global options, and one module for every noun."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from shale.errors import InvalidRequestError
from shale.service.exit_codes import ExitCode
from shale_cli import commands, help_page
from shale_cli.completion import COMPLETE
from shale_cli.extensions import extensions
from shale_cli.output import Color, Format, KeyFormat, Output, default_format
from shale_cli.session import GlobalOptions, complain

HELP = "Key-value databases that live entirely in an object store."
EPILOG = (
    "Processes, each with its own --help: writer, compactor, worker, gc, reader.  The main job on real data: demo.  "
    "Examples:  shale up -u file:///tmp/db  |  shale kv scan -u s3://bucket/db"
)
SHOWN = ("url", "output", "version")
"""What the first help page tells of the global options, to fit a screen; ``shale help options`` has them all."""


class Root(TyperGroup):
    """The group of all commands, whose help is short."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options that everybody needs, then the commands."""
        shown = [each.get_help_record(ctx) for each in self.get_params(ctx) if each.name in (*SHOWN, "help")]
        more = ("more", "Formats, credentials, configuration: shale help options.")
        with formatter.section("Options"):
            formatter.write_dl([*(each for each in shown if each is not None), more])
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
    app.callback()(_options)
    commands.register(app, noun)
    for name, extension in extensions(app, noun):
        app.add_typer(extension, name=name)
    return app


def _tell_version(value: bool) -> None:
    if value:
        from shale.service.build import version

        typer.echo(f"shale {version()}")
        raise typer.Exit


def _options(
    context: typer.Context,
    *,
    url: Annotated[
        str | None, typer.Option("--url", "-u", metavar="URL", help="The database: s3://bucket/path, file:///data/db.")
    ] = None,
    store: Annotated[str | None, typer.Option(metavar="URL", help="The store alone, with --path.")] = None,
    path: Annotated[
        str | None, typer.Option("--path", "-p", metavar="PATH", help="The database's path in the store.")
    ] = None,
    wal_store: Annotated[
        str | None, typer.Option(metavar="URL", help="The store of the WAL, if it has one of its own.")
    ] = None,
    files: Annotated[
        list[str] | None, typer.Option("--config", metavar="FILE", help="Settings as TOML or YAML; repeatable.")
    ] = None,
    env_file: Annotated[  # noqa: ARG001 - it is read before anything else
        str | None, typer.Option("--env-file", "-e", metavar="FILE", help="Lines NAME=value; -e only before the noun.")
    ] = None,
    output: Annotated[
        Format | None,
        typer.Option("--output", "-o", metavar="FORMAT", help="table (on a terminal), json (else), jsonl, yaml, csv."),
    ] = None,
    key_format: Annotated[
        KeyFormat, typer.Option(metavar="FORMAT", help="utf8, hex, base64, repr: keys here and in tables.")
    ] = KeyFormat.UTF8,
    columns: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these fields: id,progress.output_bytes.")
    ] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Tables and CSV without their first line.")] = False,
    color: Annotated[Color, typer.Option(metavar="WHEN", help="auto (minds NO_COLOR), always, never.")] = Color.AUTO,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Give up after this time, such as 10s.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No remarks on stderr.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log lines on stderr.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback ends the process
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Global options; they may also stand behind the noun and the verb."""
    context.obj = GlobalOptions(
        url=url,
        store=store,
        path=path,
        wal_store=wal_store,
        config=tuple(files or ()),
        timeout=timeout,
        verbose=verbose,
        output=Output(
            output or default_format(sys.stdout),
            key_format,
            quiet,
            tuple(name.strip() for name in (columns or "").split(",") if name.strip()),
            not no_headers,
            color,
        ),
    )


def run(arguments: Sequence[str], *, noun: str | None, noun_at: int | None = None) -> int:
    """Run one command; returns its exit code.

    Args:
        arguments: global options first.
        noun: what it is about, if it says so.
        noun_at: where that stands.
    """
    try:
        app = make_app(noun)
    except InvalidRequestError as error:
        complain(str(error))
        return ExitCode.USAGE
    if COMPLETE not in os.environ and help_page.is_wanted(arguments):
        words = [] if noun_at is None else arguments[noun_at:]
        if help_page.show(app, words):
            return 0
    if COMPLETE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    try:
        app(list(arguments), prog_name="shale")
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0
