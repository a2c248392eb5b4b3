"""Nouns of other packages: found by name, imported on use, reported if they are broken."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest
import typer

from shale import plugins
from shale.errors import InvalidRequestError
from shale_cli.__main__ import noun_index
from shale_cli.framework import registry
from shale_cli.framework.extensions import extensions

other = typer.Typer(help="Something else.")
not_an_application = len
HELP = "Told without being imported."


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("other", f"{__name__}:other", plugins.COMMANDS),
        EntryPoint("broken", "there_is_no_such_module:app", plugins.COMMANDS),
        EntryPoint("strange", f"{__name__}:not_an_application", plugins.COMMANDS),
        EntryPoint("told", "there_is_no_such_module:app", plugins.COMMANDS),
        EntryPoint("told", f"{__name__}:HELP", plugins.COMMAND_HELP),
        EntryPoint("kv", f"{__name__}:other", plugins.COMMANDS),
    ]

    def entry_points(*, group: str) -> Iterator[EntryPoint]:
        return (point for point in points if point.group == group)

    monkeypatch.setattr(plugins, "entry_points", entry_points)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["spark", "compact"], "spark"),
        (["-u", "kv", "spark"], "spark"),
        (["--url=x", "-v", "spark", "--help"], "spark"),
        (["--help"], None),
        (["-u", "x", "--help"], None),
        ([], None),
    ],
)
def test_what_a_command_line_is_about(arguments: list[str], wanted: str | None) -> None:
    at = noun_index(arguments)
    assert (None if at is None else arguments[at]) == wanted


def test_only_the_wanted_one_is_imported() -> None:
    assert list(extensions(typer.Typer(), "other")) == [("other", other)]


def test_an_unknown_name_is_compared_with_all() -> None:
    """An error suggests the nearest noun, also one of another package."""
    assert [name for name, _ in extensions(typer.Typer(), "othre")] == ["kv", "other", "told"]


def test_help_shows_what_can_be_imported_and_hides_nothing_of_ours() -> None:
    whole = typer.Typer()
    registry.register(whole, None)
    (first, application), (second, told) = extensions(whole, None)
    assert (first, application) == ("other", other)
    assert (second, told.info.help) == ("told", HELP)
    assert list(extensions(whole, "kv")) == []
    assert list(extensions(whole, "doctor")) == []


def test_our_own_extension_is_told_without_its_modules() -> None:
    program = (
        "import sys; from shale_cli.__main__ import main; main(['--help']); "
        "print(sorted(name for name in sys.modules if name.startswith('shale_spark')))"
    )
    command = [sys.executable, "-c", program]
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": os.environ["PATH"]}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert "\n  spark " in told
    assert told.splitlines()[-1] == "['shale_spark', 'shale_spark.cli']"


@pytest.mark.parametrize(("name", "reason"), [("broken", "there_is_no_such_module"), ("strange", "no.* typer app")])
def test_a_broken_one_is_told_when_it_is_wanted(name: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"{name}.*{reason}"):
        list(extensions(typer.Typer(), name))


def test_only_the_module_of_the_wanted_command_is_imported() -> None:
    for wanted in ("kv", "doctor", "read-compactions"):
        app = typer.Typer()
        registry.register(app, wanted)
        assert [each.name for each in (*app.registered_groups, *app.registered_commands)] == [wanted]
    app = typer.Typer()
    registry.register(app, "spark")
    assert {each.name for each in app.registered_groups} == set(registry.NOUNS)
    assert {each.name for each in app.registered_commands} == {*registry.COMMANDS, *registry.ALIASES}
