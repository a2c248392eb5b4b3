"""Inputs that once did what no input may do: ``tests/fuzz/regressions/<target>/<name>``."""

import subprocess
import sys

import pytest

from tests.fuzz.targets import all_targets
from tests.paths import PYTHONPATH, REPOSITORY

FOLDER = REPOSITORY / "tests" / "fuzz" / "regressions"


@pytest.mark.slow
def test_no_input_of_the_past_is_a_finding_again() -> None:
    """In a process of its own: such an input may have been a crash."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--replay", FOLDER],
        cwd=REPOSITORY,
        env={"PYTHONPATH": PYTHONPATH, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(path.is_file() for path in FOLDER.rglob('*'))} inputs" in done.stdout


def test_every_folder_is_of_a_target() -> None:
    assert {path.name for path in FOLDER.iterdir()} <= {target.name for target in all_targets()}
