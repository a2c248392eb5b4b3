"""The completion scripts in zsh and fish, where these shells are installed."""

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.external_tools import require_tool

PATIENCE_S = 60.0
LINES = [
    ("shale kv sc", "shale kv scan", "scan"),
    ("shale -u s3://bucket/db kv sc", "shale -u s3://bucket/db kv scan", "scan"),
    ("shale kv scan --output=jsonl", "shale kv scan --output=jsonl", "--output=jsonl"),
    ("shale kv import ro", "shale kv import rows.jsonl", "rows.jsonl"),
    ("shale kv import 'a f", "shale kv import 'a file.csv'", "a file.csv"),
    ("shale --config=ro", "shale --config=rows.jsonl", "--config=rows.jsonl"),
    ("echo; shale db inf", "echo; shale db info", "info"),
]
"""What is typed, what it becomes, and the one word that is offered."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files to complete, the command and its completion scripts."""
    folder: Path = tmp_path_factory.mktemp("shells")
    (folder / "files").mkdir()
    for name in ("rows.jsonl", "a file.csv"):
        (folder / "files" / name).touch()
    command = folder / "shale"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m shale_cli "$@"\n')
    command.chmod(0o755)
    for shell, name in (("zsh", "_shale"), ("fish", "shale.fish")):
        text = subprocess.run(
            [command, "completion", shell], check=True, capture_output=True, env=environment(folder), text=True
        ).stdout
        (folder / name).write_text(text)
    return folder


def environment(folder: Path) -> dict[str, str]:
    path = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": ":".join(filter(None, sys.path))}
    return {**path, "HOME": str(folder), "LC_ALL": "C.UTF-8", "TERM": "dumb", "FOLDER": str(folder)}


class Terminal:
    """An interactive shell with simulated key presses."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._seen = ""

    def type(self, text: str) -> None:
        """Type text; without a line end no command runs."""
        os.write(self._fd, text.encode())

    def wait_for(self, pattern: str) -> str:
        """Wait for a match and return its first group; earlier output is dropped."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self._seen)) is None:
            assert time.monotonic() < deadline, self._seen
            if select.select([self._fd], [], [], 1.0)[0]:
                self._seen += os.read(self._fd, 65536).decode(errors="replace")
        self._seen = self._seen[found.end() :]
        return found[1]


@contextmanager
def terminal(argv: list[str], folder: Path) -> Iterator[Terminal]:
    ours, its = os.openpty()
    shell = subprocess.Popen(
        argv, stdin=its, stdout=its, stderr=its, start_new_session=True, env=environment(folder), cwd=folder / "files"
    )
    os.close(its)
    try:
        yield Terminal(ours)
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)


@pytest.mark.slow
@pytest.mark.parametrize(
    "loaded",
    [
        "fpath=($FOLDER $fpath); autoload -Uz compinit; compinit -u -D",
        "autoload -Uz compinit; compinit -u -D; source $FOLDER/_shale",
    ],
    ids=["found in fpath", "sourced"],
)
def test_zsh_completes(place: Path, loaded: str) -> None:
    shell = require_tool("zsh")
    told = "tell() { zle expand-or-complete; print -r -- \"<$BUFFER>\" }; zle -N tell; bindkey '^I' tell"
    with terminal([shell, "-f", "-i"], place) as typed:
        typed.type(f"PS1=; bindkey -e; {told}; autoload -Uz compinit; {loaded}; print lo''aded\n")
        typed.wait_for("(loaded)\r")
        for line, wanted, _ in LINES:
            typed.type(f"{line}\t")
            assert typed.wait_for(r"<([^>]*)>\r").rstrip() == wanted
            typed.type("\x15")  # Ctrl-U: an empty line again


@pytest.mark.slow
@pytest.mark.parametrize(("line", "word"), [(line, word) for line, _, word in LINES])
def test_fish_completes(place: Path, line: str, word: str) -> None:
    program = "source $FOLDER/shale.fish; complete --do-complete $argv[1]"
    done = subprocess.run(
        [require_tool("fish"), "--no-config", "-c", program, "--", line],
        capture_output=True, text=True, env=environment(place), cwd=place / "files", timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    (offer,) = done.stdout.splitlines()
    assert offer.partition("\t")[0] == word
