"""``shale config``: what a daemon would run with."""

import importlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale_cli.session import GlobalOptions, command_line, complain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shale.service.settings import DaemonSettings, Loaded

app = typer.Typer(help="Settings of daemons.", no_args_is_help=True, rich_markup_mode=None)

Role = Annotated[str, typer.Argument(help="writer, compactor, worker, gc or reader.")]


@app.command(epilog="Example:  shale config check writer --config shale.toml -u s3://bucket/db")
def check(context: typer.Context, role: Role) -> None:
    """Load the settings of a daemon as it would; exit code 4 and a line for each mistake."""
    loaded = _load(context.obj, role)
    context.obj.output.record({"role": role, "sha256_8": loaded.sha256_8}, [("role", role), ("hash", loaded.sha256_8)])


@app.command(epilog="Example:  shale config show compactor --config shale.toml -u s3://bucket/db")
def show(
    context: typer.Context,
    role: Role,
    origin: Annotated[bool, typer.Option("--origin", help="Say also where each value comes from.")] = False,
) -> None:
    """Print every setting that a daemon would run with; secrets are hidden."""
    from shale.service.settings import origins

    loaded = _load(context.obj, role)
    data = loaded.settings.model_dump(mode="json", exclude={"config"})
    leaves = _leaves(data)
    if not origin:
        context.obj.output.record({"role": role, "settings": data}, leaves)
        return
    found = {".".join(names): told for names, told in origins(settings_class(role), command_line(context.obj)).items()}
    items = [{"setting": name, "value": value, "origin": _origin(found, name)} for name, value in leaves]
    context.obj.output.listing("settings", items, ("setting", "value", "origin"))


def _origin(found: "Mapping[str, str]", name: str) -> str:
    """Of a setting, or of the list or table that it stands in."""
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
    """Print the page of all settings of all daemons, with defaults, as Markdown."""
    from shale_cli.settings_reference import main

    main()


def _load(options: GlobalOptions, role: str) -> "Loaded[DaemonSettings]":
    from shale.service.exit_codes import ExitCode
    from shale.service.settings import SettingsError, load

    try:
        loaded = load(settings_class(role), command_line(options))
    except SettingsError as error:
        for problem in error.problems:
            complain(problem)
        raise SystemExit(ExitCode.NEGATIVE) from None
    for variable in loaded.unknown_env:
        options.output.note(f"shale: unknown variable {variable}")
    return loaded


def settings_class(role: str) -> "type[DaemonSettings]":
    """The class whose ``ROLE`` this is, in the daemon's own package, which is found by its name."""
    from shale.service.settings import DaemonSettings
    from shale_cli.__main__ import PROCESSES

    if role not in PROCESSES:
        raise typer.BadParameter(f"{role} is none of {', '.join(PROCESSES)}")
    module = importlib.import_module(f"{PROCESSES[role]}.settings")
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, DaemonSettings) and vars(value).get("ROLE") == role:
            return value
    raise AssertionError(f"{module.__name__} has no settings for {role}")


def _leaves(tree: Any, above: str = "") -> list[tuple[str, object]]:
    """Values by their dotted names."""
    if not isinstance(tree, dict) or not tree:
        return [(above, tree)]
    return [leaf for name, below in tree.items() for leaf in _leaves(below, f"{above}.{name}" if above else name)]
