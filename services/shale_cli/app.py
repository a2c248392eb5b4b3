"""The typer application: global options, and one module for every noun."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from shale.errors import InvalidRequestError
from shale.service.exit_codes import ExitCode
from shale_cli import aliases, compaction, compactions, config, doctor, healthcheck, helping, kv, manifest, up
from shale_cli.extensions import extensions
from shale_cli.output import Format, KeyFormat, Output, default_format
from shale_cli.session import GlobalOptions, complain

app = typer.Typer(
    name="shale",
    help="Key-value databases that live entirely in an object store.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="Processes, each with its own --help: writer, compactor, worker, gc, reader.  The main job on real data: "
    "demo.",
)
app.add_typer(kv.app, name="kv")
app.add_typer(manifest.app, name="manifest")
app.add_typer(compaction.app, name="compaction")
app.add_typer(compactions.app, name="compactions")
app.add_typer(config.app, name="config")
app.add_typer(helping.app, name="help")
app.command("doctor")(doctor.doctor)
app.command("healthcheck")(healthcheck.healthcheck)
app.command("up")(up.up)
aliases.register(app)


def _tell_version(value: bool) -> None:
    if value:
        from shale.service.build import version

        typer.echo(f"shale {version()}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    *,
    url: Annotated[
        str | None,
        typer.Option("--url", "-u", help="The database: s3://bucket/path, file:///data/orders, gs://, az://."),
    ] = None,
    store: Annotated[str | None, typer.Option(help="The store alone, with --path.")] = None,
    path: Annotated[str | None, typer.Option("--path", "-p", help="The database's path in the store.")] = None,
    files: Annotated[
        list[str] | None, typer.Option("--config", help="A configuration file (TOML or YAML); repeatable.")
    ] = None,
    output: Annotated[
        Format | None, typer.Option("--output", "-o", help="Default: table on a terminal, else json.")
    ] = None,
    key_format: Annotated[
        KeyFormat, typer.Option(help="How keys and values are written here and in tables.")
    ] = KeyFormat.UTF8,
    timeout: Annotated[str | None, typer.Option(help="Give up after this time, for example 10s.")] = None,
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
        config=tuple(files or ()),
        timeout=timeout,
        verbose=verbose,
        output=Output(output or default_format(sys.stdout), key_format, quiet),
    )


def run(arguments: Sequence[str], *, noun: str | None) -> int:
    """Run one command; returns its exit code.  ``noun`` is what it is about, if it says so."""
    try:
        for name, extension in extensions(app, noun):
            app.add_typer(extension, name=name)
    except InvalidRequestError as error:
        complain(str(error))
        return ExitCode.USAGE
    try:
        app(list(arguments), prog_name="shale")
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0
