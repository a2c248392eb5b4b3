"""The help fits a screen and has examples; the generated pages are current; shells complete it."""

import os
import subprocess
import sys

import pytest

from shale_cli.framework.daemons import VERBS
from shale_cli.framework.help.cli_reference import page
from shale_cli.framework.help.command_tree import CommandHelp, command_tree, examples
from shale_cli.framework.help.manual_page import manual
from shale_cli.framework.registry import COMMANDS, NOUNS
from tests.paths import REPOSITORY

ENVIRONMENT = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": os.environ["PATH"], "COLUMNS": "80"}
ALL = list(command_tree())


def told(name: str) -> CommandHelp:
    return next(each for each in ALL if each.name == name)


def run(*arguments: str, **environment: str) -> str:
    command = [sys.executable, "-m", "shale_cli", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env={**ENVIRONMENT, **environment}
    ).stdout


@pytest.mark.slow
@pytest.mark.parametrize("role", VERBS)
def test_the_help_of_a_daemon_names_its_commands(role: str) -> None:
    text = " ".join(run(role, "--help").split())
    assert [verb for verb in VERBS[role] if f"{role} {verb}" not in text] == []


def test_the_help_of_each_command_fits_a_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eighty columns and forty lines.  Extensions have their own tests; `shale gc` and `shale writer` are daemons."""
    from shale_cli.__main__ import main

    monkeypatch.setenv("COLUMNS", "80")
    for name in ("shale", *(each.name for each in ALL if each.name.split()[1:] not in (["gc"], ["writer"]))):
        words = [*name.split()[1:], "--help"]
        monkeypatch.setattr(sys, "argv", ["shale", *words])
        assert main() == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= 40, f"{name}: {len(lines)} lines"
        assert max(map(len, lines)) <= 80, name


def test_every_command_has_examples_that_name_it() -> None:
    for each in ALL:
        if each.is_noun or each.is_hidden:
            continue
        assert each.examples, f"{each.name} has no example"
        assert all(f"{each.name} " in f"{example} " for example in each.examples), each.name


def test_examples_are_taken_apart() -> None:
    assert examples("Example:  shale a | gzip") == ("shale a | gzip",)
    assert examples("Examples:  shale a  |  shale b") == ("shale a", "shale b")
    assert examples("") == ()


def test_the_page_of_commands_is_fresh() -> None:
    assert page() == (REPOSITORY / "docs/reference/cli.md").read_text(), "make gen"


def test_the_manual_has_every_command() -> None:
    text = manual()
    assert text.startswith(".TH SHALE 1")
    for each in ALL:
        if not each.is_noun and not each.is_hidden:
            assert f".SS {each.usage}".replace("-", "\\-") in text.replace("\\e", "\\")
    assert not [line for line in text.splitlines() if line.startswith("'")]


def test_the_first_page_names_every_noun() -> None:
    text = run("--help")
    for name in (*NOUNS, *COMMANDS):
        assert f"\n  {name} " in text


def test_help_needs_no_parser_but_for_what_is_not_there() -> None:
    program = (
        "import sys; from shale_cli.__main__ import main; "
        "codes = [int(main(words)) for words in (['--help'], ['kv', '-h'], ['-u', 'kv', 'kv', 'get', 'kv', '--help'],"
        " ['read-manifest', '--help'])]; "
        "print(codes, 'pydantic' in sys.modules, main(['kv', 'nonsense', '-h']))"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert ended.stdout.splitlines()[-1] == "[0, 0, 0, 0] False 2"
    assert "\nUsage: shale kv get [OPTIONS]" in ended.stdout


def test_help_may_stand_before_what_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    from shale_cli.__main__ import main

    for words in (["help", "kv"], ["help", "kv", "scan"], ["-u", "x", "help", "list-manifests"]):
        assert main(words) == 0
        name = " ".join(words[words.index("help") + 1 :])
        assert capsys.readouterr().out.startswith(f"Usage: shale {name} ")
    assert main(["help", "nonsense"]) == 2
    assert "No such command 'nonsense'" in capsys.readouterr().err
    assert main(["help", "exit-codes", "-o", "csv"]) == 0
    assert capsys.readouterr().out.startswith("code,name,meaning\n")
