"""What a crashed run has left is ended by the next one, and nothing else is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.stack.leftovers import Leftovers, end_leftovers


def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])


def test_the_processes_of_a_crashed_run_are_ended(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    with sleeper() as left, sleeper() as other:
        leftovers = Leftovers(state)
        leftovers.started(left.pid)
        leftovers.started(other.pid)
        written = json.loads(state.read_text())
        written["owner"] = [os.getpid(), "another time of start"]
        written["processes"][str(other.pid)] = "another time of start"
        state.write_text(json.dumps(written))
        end_leftovers(state)
        assert left.wait(30) == -9
        assert other.poll() is None, "its process id was reused"
        other.kill()
    assert not state.exists()


def test_a_run_that_has_not_ended_is_left_alone(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    with sleeper() as running:
        Leftovers(state).started(running.pid)
        with pytest.raises(RuntimeError, match="another soak of this folder runs"):
            end_leftovers(state)
        assert running.poll() is None
        running.kill()


def test_the_directories_of_a_crashed_run_are_removed_if_they_are_empty(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    leftovers = Leftovers(state)
    for name in ("made", "removed"):
        (tmp_path / name).mkdir()
        leftovers.made_folder(tmp_path / name)
    (tmp_path / "removed").rmdir()
    written = json.loads(state.read_text())
    written["owner"] = [os.getpid(), "another time of start"]
    state.write_text(json.dumps(written))
    end_leftovers(state)
    assert list(tmp_path.iterdir()) == []
