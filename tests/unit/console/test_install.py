"""A daemon's console is made at its first request, and answers as the rest of the admin port does."""

import subprocess
import sys

import pytest

from tests.paths import PYTHONPATH


@pytest.mark.parametrize("module", ["shale_writer.app", "shale_gc.app", "shale_compactor.app", "shale_reader.app"])
def test_a_daemon_starts_without_the_console(module: str) -> None:
    code = f"import sys, {module}; print([name for name in sys.modules if name.startswith('shale.console.')])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": PYTHONPATH}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['shale.console.install']"
