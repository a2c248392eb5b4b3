"""Programs that tests start and that pip does not bring: ``make tools`` installs them beside the interpreter."""

import os
import shutil
import sys
from pathlib import Path

import pytest

REQUIRED = "SHALE_TEST_TOOLS"
"""With the value ``required``, as in ``.ci/run``, a missing program is a failure."""


def find_tool(name: str) -> str | None:
    """Return the path of a program: beside the interpreter, else on the ``PATH``."""
    return shutil.which(name, path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))


def require_tool(name: str) -> str:
    """Return the path of a program; without it, skip the test, or fail where tools are required."""
    found = find_tool(name)
    if found is not None:
        return found
    missing = f"{name} is neither beside the interpreter nor on the PATH: make tools"
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(missing)
    pytest.skip(missing)
