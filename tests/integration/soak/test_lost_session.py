"""A worker that has lost its Spark session creates another one for the next job."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import PYTHONPATH


@pytest.mark.soak
def test_a_lost_session_is_made_again(tmp_path: Path) -> None:
    """The Java process is killed or stopped; runs in its own process, because it kills."""
    assert said(tmp_path, "lost_session")[-1:] == ["done"]


@pytest.mark.soak
def test_a_job_whose_session_is_killed_is_completed_here(tmp_path: Path) -> None:
    """The finished SSTs of tasks are kept, and the next job does not wait for another session."""
    assert "done the Spark session was lost" in " ".join(said(tmp_path, "lost_job", str(tmp_path)))


def said(folder: Path, module: str, *arguments: str) -> list[str]:
    """Return the last words that a program of this folder prints."""
    command = [sys.executable, "-m", f"tests.integration.soak.{module}", *arguments]
    answer = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        cwd=folder,
        stdout=subprocess.PIPE,
        timeout=240,
        check=True,
        text=True,
    )
    return answer.stdout.split()
