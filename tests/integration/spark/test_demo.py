"""The demo, as `make spark-demo` runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import REPOSITORY


@pytest.mark.soak
@pytest.mark.usefixtures("java")
def test_every_count_of_the_demo_matches(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}/shared:{REPOSITORY}/services"}
    command = [sys.executable, "-m", "shale_spark.demo", str(tmp_path / "demo")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "DIFFERS" not in ended.stdout
