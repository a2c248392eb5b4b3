"""Usage errors: an exit code and one line, without a write."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shale_cli.__main__ import main

Call = Callable[..., int]
Refusal = Callable[..., tuple[int, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a command; return its exit code."""

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["shale", *arguments])
        return int(main() or 0)

    return run


@pytest.fixture
def refusal(call: Call, capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Return exit code and error line of a command that prints no result."""

    def run(*arguments: str) -> tuple[int, str]:
        code = call(*arguments)
        said = capsys.readouterr()
        assert said.out == ""
        (line,) = said.err.splitlines()
        return code, line

    return run


def test_absence_is_told_with_the_place(refusal: Refusal, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    for command in (["manifest", "show"], ["manifest", "list"], ["compactions", "show"], ["kv", "get", "a"]):
        code, line = refusal(*command, "-u", url)
        assert code == 3, line
        assert url in line
    assert refusal("kv", "delete", "a", "-u", url)[0] in (2, 3)
    assert list(tmp_path.iterdir()) == [], "something was written"


def test_a_version_that_is_not_there(
    call: Call, refusal: Refusal, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"file://{tmp_path}/db"
    assert call("kv", "put", "a", "1", "-u", url) == 0
    capsys.readouterr()
    assert refusal("manifest", "show", "77", "-u", url)[0] == 3


def test_bad_input_is_one_line(call: Call, refusal: Refusal, tmp_path: Path) -> None:
    assert refusal("kv", "get", "a", "-u", "nonsense")[0] == 2
    assert refusal("kv", "get", "a", "--store", f"file://{tmp_path}")[0] == 2
    assert refusal("kv", "put", "a", "-u", f"file://{tmp_path}/db")[0] == 2
    assert "either" in refusal("kv", "put", "a", "1", "--file", "-", "-u", f"file://{tmp_path}/db")[1]
    assert refusal("kv", "put", "", "v", "-u", f"file://{tmp_path}/db")[0] == 2
    assert refusal("kv", "put", "k" * 70_000, "v", "-u", f"file://{tmp_path}/db")[0] == 2
    assert refusal("kv", "get", "a", "-u", f"file://{tmp_path}/db", "--timeout", "soon")[0] == 2
    assert refusal("kv", "get", "a", "-u", f"file://{tmp_path}/db", "--config", "/none.toml")[0] == 78
    assert call("kv", "nonsense") == 2
    assert call("kv", "get") == 2
    assert call("nonsense") == 2
    assert list(tmp_path.iterdir()) == []


def test_a_number_beyond_64_bits_is_no_sequence_number(refusal: Refusal, tmp_path: Path) -> None:
    code, line = refusal("seq", "to-time", str(2**64), "-u", f"file://{tmp_path}/db")
    assert (code, line) == (2, f"shale: {2**64} is not a sequence number: the largest has 64 bits")


def test_what_is_not_there_is_told_with_the_place(call: Call, refusal: Refusal, tmp_path: Path) -> None:
    """In each format: a table prints no header before its first row."""
    url = f"file://{tmp_path}/db"
    code, line = refusal("wal", "tail", "--once", "-o", "table", "-u", url)
    assert (code, url in line) == (3, True)
    code, line = refusal("compactions", "list", "-u", url)
    assert (code, line) == (3, f"shale: {url}: no compactions file exists here")
    code, line = refusal("seq", "to-time", "5", "-u", url)
    assert (code, url in line) == (3, True)


@pytest.mark.parametrize("words", [["help", "exit-codes"], ["plan"], ["--help"], ["completion", "bash"]])
def test_output_that_cannot_be_written_is_one_line(words: list[str]) -> None:
    """A full disk fails some commands at their first line and others at their end."""
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""}
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "shale_cli", *words]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, env=environment)
    assert (ended.returncode, ended.stderr) == (1, b"shale: cannot write the output: No space left on device\n")
