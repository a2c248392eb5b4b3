"""``shale config``: checks and prints the settings of daemons."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale_cli.framework.daemons import settings_class
from shale_cli.framework.session import GlobalOptions, command_line, print_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shale.service.config.settings import DaemonSettings, LoadedSettings

app = typer.Typer(help="Settings of daemons.", no_args_is_help=True, rich_markup_mode=None)

TOKEN_BYTES = 24
"""192 bits, 48 hexadecimal digits."""

Role = Annotated[str, typer.Argument(help="writer, compactor, worker, gc or reader.")]


@app.command(epilog="Example:  shale config check writer --config shale.toml -u s3://bucket/db")
def check(context: typer.Context, role: Role) -> None:
    """Load the settings of a daemon as it would; exit 4 and print a line for each error."""
    loaded = _load(context.obj, role)
    context.obj.output.record({"role": role, "sha256_8": loaded.sha256_8}, [("role", role), ("hash", loaded.sha256_8)])


@app.command(epilog="Example:  shale config show compactor --config shale.toml -u s3://bucket/db")
def show(
    context: typer.Context,
    role: Role,
    origin: Annotated[bool, typer.Option("--origin", help="Also print where each value comes from.")] = False,
) -> None:
    """Print the settings that a daemon would use; secrets are hidden."""
    from shale.service.config.settings import origins

    loaded = _load(context.obj, role)
    data = loaded.settings.model_dump(mode="json", exclude={"config"})
    leaves = _leaves(data)
    if not origin:
        context.obj.output.record({"role": role, "settings": data}, leaves)
        return
    found = {".".join(names): text for names, text in origins(settings_class(role), command_line(context.obj)).items()}
    items = [{"setting": name, "value": value, "origin": _origin(found, name)} for name, value in leaves]
    context.obj.output.listing("settings", items, ("setting", "value", "origin"))


def _origin(found: "Mapping[str, str]", name: str) -> str:
    """Return the origin of a setting, or of the list or table that contains it."""
    while name not in found:
        name, dot, _ = name.rpartition(".")
        if not dot:
            return "default"
    return found[name]


@app.command(epilog="Example:  shale config schema writer -o json")
def schema(context: typer.Context, role: Role) -> None:
    """Print the JSON Schema of a daemon's settings."""
    data = settings_class(role).model_json_schema()
    context.obj.output.record({"role": role, "schema": data}, [(name, value) for name, value in _leaves(data)])


@app.command(epilog="Example:  shale config reference > settings.md")
def reference() -> None:
    """Print all settings of all daemons with their defaults, as Markdown."""
    from shale_cli.framework.help.settings_reference import main

    main()


@app.command("new-token", epilog="Examples:  shale config new-token  |  shale config new-token -o json")
def new_token(context: typer.Context) -> None:
    """Print a random bearer token for clients, and its hash for the settings of daemons."""
    import secrets

    from shale.core.token_hash import token_hash

    token = secrets.token_hex(TOKEN_BYTES)
    fields = {"token": token, "hash": token_hash(token)}
    context.obj.output.record(fields, list(fields.items()))


@app.command("hash-token", epilog="Examples:  shale config hash-token token.txt  |  shale config hash-token -")
def hash_token(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="File with the token; -: stdin. Other users can read a command line.")],
) -> None:
    """Print the hash of a bearer token, which settings hold in place of the token."""
    from shale.client.authorization import check_token, token_of_file
    from shale.core.token_hash import token_hash

    token = check_token(sys.stdin.read().strip()) if str(file) == "-" else token_of_file(file)
    hashed = token_hash(token)
    context.obj.output.record({"hash": hashed}, [("hash", hashed)])


def _load(options: GlobalOptions, role: str) -> "LoadedSettings[DaemonSettings]":
    from shale.service.config.settings import load_settings
    from shale.service.config.settings_error import SettingsError
    from shale.service.exit_codes import ExitCode

    try:
        loaded = load_settings(settings_class(role), command_line(options))
    except SettingsError as error:
        for problem in error.problems:
            print_error(problem)
        raise SystemExit(ExitCode.NEGATIVE) from None
    for name in loaded.unknown_env:
        options.output.note(f"shale: no such setting: {name}")
    return loaded


def _leaves(tree: Any, above: str = "") -> list[tuple[str, object]]:
    """Return the leaf values of a tree with their dotted names."""
    if not isinstance(tree, dict) or not tree:
        return [(above, tree)]
    return [leaf for name, below in tree.items() for leaf in _leaves(below, f"{above}.{name}" if above else name)]
