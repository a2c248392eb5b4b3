"""A worker that has lost its Spark session makes another one for the next job."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.soak
def test_a_lost_session_is_made_again(tmp_path: Path) -> None:
    """Whether its Java process was killed, or somebody stopped it; a process of its own, since it kills."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "shared", ROOT / "services")))
    command = [sys.executable, "-m", "tests.integration.soak.lost_session"]
    answer = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path, stdout=subprocess.PIPE, timeout=240, check=True
    )
    assert answer.stdout.split()[-1:] == [b"done"]
