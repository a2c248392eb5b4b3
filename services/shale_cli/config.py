"""``shale config``: what a daemon would run with."""

import importlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale_cli.session import GlobalOptions, command_line, complain

if TYPE_CHECKING:
    from shale.service.settings import DaemonSettings, Loaded

app = typer.Typer(help="Settings of daemons.", no_args_is_help=True, rich_markup_mode=None)

Role = Annotated[str, typer.Argument(help="writer, compactor, worker, gc or reader.")]


@app.command()
def check(context: typer.Context, role: Role) -> None:
    """Load the settings of a daemon as it would; exit code 4 and a line for each mistake."""
    loaded = _load(context.obj, role)
    context.obj.output.record({"role": role, "sha256_8": loaded.sha256_8}, [("role", role), ("hash", loaded.sha256_8)])


@app.command()
def show(context: typer.Context, role: Role) -> None:
    """Print every setting that a daemon would run with; secrets are hidden."""
    loaded = _load(context.obj, role)
    data = loaded.settings.model_dump(mode="json", exclude={"config"})
    context.obj.output.record({"role": role, "settings": data}, [(name, value) for name, value in _leaves(data)])


@app.command()
def schema(context: typer.Context, role: Role) -> None:
    """Print the JSON Schema of a daemon's settings."""
    data = _settings_class(role).model_json_schema()
    context.obj.output.record({"role": role, "schema": data}, [(name, value) for name, value in _leaves(data)])


def _load(options: GlobalOptions, role: str) -> "Loaded[DaemonSettings]":
    from shale.service.exit_codes import ExitCode
    from shale.service.settings import SettingsError, load

    try:
        loaded = load(_settings_class(role), command_line(options))
    except SettingsError as error:
        for problem in error.problems:
            complain(problem)
        raise SystemExit(ExitCode.NEGATIVE) from None
    for variable in loaded.unknown_env:
        options.output.note(f"shale: unknown variable {variable}")
    return loaded


def _settings_class(role: str) -> "type[DaemonSettings]":
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
