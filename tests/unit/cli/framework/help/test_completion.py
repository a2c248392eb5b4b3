"""Completions offered to shells, and the completion script in bash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shale_cli.__main__ import main
from shale_cli.commands.completion import Shell, words_of
from shale_cli.framework.help.completions import completions

ENVIRONMENT = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": os.environ["PATH"]}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("shale k", {"kv"}),
        ("shale compaction", {"compaction", "compactions"}),
        ("shale w", {"wal", "writer", "worker"}),
        ("shale gc ", {"plan", "run"}),
        ("shale kv ", {"get", "put", "delete", "scan", "export", "import"}),
        ("shale -u file:///a/b kv sc", {"scan"}),
        ("shale kv -o csv sc", {"scan"}),
        ("shale -u file:///a/b kv scan --p", {"--prefix", "--pin", "--path"}),
        ("shale --ver", {"--version", "--verbose"}),
        ("shale kv get --ver", {"--verbose"}),
        ("shale kv scan -o ", {"table", "json", "jsonl", "yaml", "csv"}),
        ("shale -o t", {"table"}),
        ("shale kv scan --output=js", {"--output=json", "--output=jsonl"}),
        ("shale seq to-time 5 --round ", {"up", "down"}),
        ("shale completion z", {"zsh"}),
        ("shale -u ", set()),
        ("shale kv get -- --p", set()),
        ("shale nonsense ", set()),
        ("shale writer ", {"promote"}),
        ("shale kv get ", set()),
        ("shale kv import 'a fi", set()),
    ],
)
def test_completions_of_a_command_line(line: str, offered: set[str]) -> None:
    words, begun = words_of(line)
    assert {each.word for each in completions(words[1:], begun)} == offered


def test_no_alias_is_offered_and_what_others_bring_is() -> None:
    words = {each.word for each in completions([], "")}
    assert {"kv", "doctor", "demo", "spark"} <= words
    assert not {"list-manifests", "scan"} & words


@pytest.mark.parametrize(
    ("line", "words", "begun"),
    [
        ("shale kv", ["shale"], "kv"),
        ("shale kv ", ["shale", "kv"], ""),
        ('shale "a b" c', ["shale", "a b"], "c"),
        ("shale 'a b", ["shale"], "a b"),
        ("shale a\\ b", ["shale"], "a b"),
        ("", [], ""),
    ],
)
def test_a_line_is_taken_apart(line: str, words: list[str], begun: str) -> None:
    assert words_of(line) == (words, begun)


@pytest.mark.parametrize(
    ("shell", "answer"),
    [
        ("bash", "get"),
        ("zsh", "get:Print the row of a key; exit 3 if it does not exist."),
        ("fish", "get\tPrint the row of a key; exit 3 if it does not exist."),
        ("powershell", "get\tPrint the row of a key; exit 3 if it does not exist."),
    ],
)
def test_each_shell_is_answered_in_its_form(
    shell: str, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_SHALE_COMPLETE", shell)
    monkeypatch.setenv("_SHALE_LINE", "shale kv ge")
    assert main([]) == 0
    assert capsys.readouterr().out == f"{answer}\n"


@pytest.mark.parametrize("shell", list(Shell))
def test_each_shell_has_a_script(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell.value]) == 0
    script = capsys.readouterr().out
    assert "_SHALE_COMPLETE" in script
    assert "_SHALE_LINE" in script


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("shale -u s3://bucket/db kv sc", "scan"),
        ("shale kv scan --output=js", "json jsonl"),
        ("shale db inf", "info"),
        ("shale kv get ", ""),
    ],
)
def test_bash_completes(line: str, replies: str, tmp_path: Path) -> None:
    """With a URL before the noun: bash splits words at colons, so completion must not count words."""
    command = tmp_path / "shale"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m shale_cli "$@"\n')
    command.chmod(0o755)
    program = (
        'source <(shale completion bash); COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}; '
        '_shale_completion shale; echo "${COMPREPLY[*]}"'
    )
    environment = {**ENVIRONMENT, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = subprocess.run(["bash", "-c", program, "bash", line], capture_output=True, text=True, env=environment)  # noqa: PLW1510
    assert (ended.stdout.strip(), ended.stderr) == (replies, "")
