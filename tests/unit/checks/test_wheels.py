"""The checks of wheels recognize a module that runs on other Pythons and systems, and one that does not."""

import subprocess
import sys
from pathlib import Path

import numpy.random.mtrand
import pytest

from shale.kernels.compiler.module import MODULE_PATH
from shale.kernels.dispatch import use_kernels
from tests.checks.wheels import UV, WheelError, check_module, interpreters


@pytest.mark.skipif(not use_kernels(), reason="there are no compiled kernels")
def test_the_kernels_need_only_the_stable_interface() -> None:
    check_module(MODULE_PATH)


def test_a_module_for_one_version_of_python_is_refused() -> None:
    with pytest.raises(WheelError, match=r"not in the stable interface of 3\.11: .*Py"):
        check_module(Path(numpy.random.mtrand.__file__))


@pytest.mark.slow
def test_interpreters_are_found_and_asked_for_their_version() -> None:
    found = list(interpreters([f"{sys.executable} -E"]))
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert [each.version for each in found].count(version) >= 1
    assert found[-1].command == (sys.executable, "-E")
    assert found[-1].version == version
    assert not found[-1].has_venv
    with pytest.raises(WheelError, match="/no/python is no interpreter"):
        list(interpreters(["/no/python"]))


def test_the_build_needs_no_environment_on_the_path() -> None:
    done = subprocess.run([UV, "--version"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("uv ")
