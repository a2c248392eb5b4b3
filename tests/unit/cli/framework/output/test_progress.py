"""Progress on stderr, interrupts, and confirmation before a command destroys something."""

import os
import pty
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from shale.errors import InvalidRequestError
from shale_cli.framework.confirmation import ask_confirmation
from shale_cli.framework.output.progress import progress
from shale_cli.framework.output.writer import Format, KeyEncoding, Output
from tests.clocks import ManualClock
from tests.paths import REPOSITORY

OUTPUT = Output(Format.JSON, KeyEncoding.UTF8)
QUIET = Output(Format.JSON, KeyEncoding.UTF8, quiet=True)
ENVIRONMENT = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": os.environ["PATH"]}


def test_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock(0)
    with progress(OUTPUT, clock, "exported", "rows") as on_progress:
        for second in range(26):
            clock.ms = second * 1000
            on_progress(second * 1000, 50_000 if second > 15 else None)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "exported 10,000 rows, 1,000 rows/s",
        "exported 20,000 of 50,000 rows (40%), 1,000 rows/s, 0:00:30 left",
    ]


def test_what_was_done_before_does_not_count_for_the_rate(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock(0)
    with progress(OUTPUT, clock, "imported", "rows") as on_progress:
        on_progress(1_000_000, 1_010_000)
        clock.ms = 10_000
        on_progress(1_001_000)
    assert capsys.readouterr().err == "imported 1,001,000 of 1,010,000 rows (99%), 100 rows/s, 0:01:30 left\n"


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock(0)
    with progress(QUIET, clock, "exported", "rows") as on_progress:
        for second in range(30):
            clock.ms = second * 1000
            on_progress(second)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("output", [OUTPUT, QUIET])
def test_who_is_stopped_says_what_was_done(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    def work(error: BaseException) -> None:
        with progress(output, ManualClock(0), "imported", "rows") as on_progress:
            on_progress(1234)
            raise error

    with pytest.raises(KeyboardInterrupt):
        work(KeyboardInterrupt())
    assert capsys.readouterr().err == "shale: stopped: imported 1,234 rows\n"
    with pytest.raises(InvalidRequestError):
        work(InvalidRequestError("x"))
    assert capsys.readouterr().err == "", "an error says itself what is wrong"


@pytest.mark.slow
def test_ctrl_c_is_130_and_says_what_was_done(tmp_path: Path) -> None:
    """An import from a pipe that does not end reports its progress on Ctrl-C."""
    command = [sys.executable, "-m", "shale_cli", "kv", "import", "-", "-u", f"file://{tmp_path}/db"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        # A test run in the background may ignore SIGINT, and the command would inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - there are no threads here
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"key": "a", "value": "1"}\n' * 30_000)
        process.stdin.flush()  # returns when it has read most of it
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130, said
    assert "shale: stopped: imported " in said
    assert said.endswith("shale: interrupted\n")


@pytest.mark.parametrize(("yes", "dry_run", "acts"), [(True, False, True), (False, True, False), (False, False, False)])
def test_nothing_is_destroyed_without_a_word(
    yes: bool, dry_run: bool, acts: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask_confirmation(OUTPUT, "orders", yes=yes, dry_run=dry_run, what="delete 3 rows") is acts
    said = capsys.readouterr().err
    assert ("dry run" in said) is not acts
    assert ("add --yes" in said) is (not yes and not dry_run)
    with pytest.raises(InvalidRequestError):
        ask_confirmation(OUTPUT, "orders", yes=True, dry_run=True, what="delete 3 rows")


@pytest.mark.parametrize(("typed", "acts"), [("orders\n", "True"), ("yes\n", "False"), ("\n", "False")])
def test_on_a_terminal_the_name_may_be_typed(typed: str, acts: str) -> None:
    program = (
        "from tests.unit.cli.framework.output.test_progress import OUTPUT, ask_confirmation; "
        "print(ask_confirmation(OUTPUT, 'orders', yes=False, dry_run=False, what='delete 3 rows'))"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=ENVIRONMENT,
        cwd=REPOSITORY,
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        assert process.stdout is not None
        assert process.stdout.read().decode().strip() == acts
        assert b"This will delete 3 rows.  Type orders to continue" in os.read(ours, 4096)
    os.close(ours)
