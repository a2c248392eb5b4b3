"""A fork looks to daemons and commands like a process that an interpreter starts."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import PYTHONPATH
from tests.processes.forks import Fork, command, command_environment, run

PROBE = "tests.processes.probe"
ENVIRONMENT = {"PYTHONPATH": PYTHONPATH, "PATH": os.environ["PATH"], "GREETING": "hello"}


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("how", ["0", "3", "words", "raise", "warn", "die"])
def test_it_is_as_a_program(tmp_path: Path, how: str, is_strict: bool) -> None:
    strict = ["-W", "error"] if is_strict else []
    command = [sys.executable, *strict, "-m", PROBE, how, "more"]
    program = subprocess.run(command, input=b"in", capture_output=True, env=ENVIRONMENT, cwd=tmp_path, check=False)
    fork = run(PROBE, how, "more", stdin=b"in", env=ENVIRONMENT, folder=tmp_path, is_strict=is_strict)
    assert fork.returncode == program.returncode
    assert fork.stderr.splitlines()[-1:] == program.stderr.splitlines()[-1:]
    if how == "die":
        assert fork.stdout == program.stdout == b"", "it was in a buffer"
    else:
        assert json.loads(fork.stdout) == json.loads(program.stdout)


def test_signals_reach_it_and_its_end_is_told(tmp_path: Path) -> None:
    waits, never = os.pipe()
    with os.fdopen(waits) as stdin, os.fdopen(never, "w"), Path(os.devnull).open("r+b") as null:
        fork = Fork(PROBE, "0", env=ENVIRONMENT, folder=tmp_path, stdio=(stdin, null, null))
        assert fork.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            fork.wait(0.01)
        fork.terminate()
        assert fork.wait(60) == -signal.SIGTERM
        fork.kill()
        assert fork.poll() == fork.returncode == -signal.SIGTERM


def test_what_an_interpreter_reads_first_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="MALLOC_ARENA_MAX is for an interpreter that starts"):
        run(PROBE, "0", env={**ENVIRONMENT, "MALLOC_ARENA_MAX": "1"}, folder=tmp_path)


@pytest.mark.parametrize("how", ["0", "3", "words", "raise", "die"])
def test_a_command_is_as_a_program(tmp_path: Path, how: str) -> None:
    shell = ["bash", "-c"]
    line = f"{sys.executable} -m {PROBE} {how} more"
    program = subprocess.run(
        [*shell, line], input=b"in", capture_output=True, env=ENVIRONMENT, cwd=tmp_path, check=False
    )
    number, variables = command_environment()
    line, env = f"{command(PROBE)} {how} more", ENVIRONMENT | variables
    fork = subprocess.run(
        [*shell, line], input=b"in", capture_output=True, env=env, cwd=tmp_path, pass_fds=[number], check=False
    )
    assert fork.returncode == program.returncode
    assert fork.stderr.splitlines()[-1:] == program.stderr.splitlines()[-1:]
    assert fork.stdout[:1] == program.stdout[:1]
    if how != "die":
        assert json.loads(fork.stdout) == json.loads(program.stdout)


def test_a_command_passes_signals_on(tmp_path: Path) -> None:
    number, variables = command_environment()
    arguments = [*command(PROBE).split(), "0"]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, env=ENVIRONMENT | variables, cwd=tmp_path, pass_fds=[number]
    ) as child:
        child.terminate()
        assert child.wait(60) == -signal.SIGTERM
