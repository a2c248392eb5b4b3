"""``pytest --tier`` and ``--part`` run each test in one tier and one part."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import PYTHONPATH

TESTS = """
import pytest

@pytest.mark.slow
def test_slow(): ...

@pytest.mark.parametrize("case", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_case(case): ...
"""
NAMES = [f"test_{name}.py" for name in "abcdefgh"]


def collect(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    for name in NAMES:
        (folder / name).write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(folder), "-p", "tests.tiers"]
    return subprocess.run(
        [*command, "--import-mode=importlib", "--strict-markers", "--collect-only", "-q", *arguments, str(folder)],
        capture_output=True,
        text=True,
        # Installed plugins take two seconds to load and do not matter here.
        env={"PYTHONPATH": PYTHONPATH, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=folder,
        check=False,
    )


def collected(folder: Path, *arguments: str) -> list[tuple[str, str]]:
    return re.findall(r"^(test_.\.py)::test_(\S+)$", collect(folder, *arguments).stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "tests"),
    [
        ((), ["slow", "case[0]", "case[1]"]),
        (("--tier", "default"), ["case[0]"]),
        (("--tier", "slow"), ["slow", "case[1]"]),
    ],
)
def test_a_tier_is_collected(tmp_path: Path, arguments: tuple[str, ...], tests: list[str]) -> None:
    assert collected(tmp_path, *arguments) == [(name, test) for name in NAMES for test in tests]


def test_parts_are_whole_files_and_make_up_all(tmp_path: Path) -> None:
    parts = [collected(tmp_path, "--tier", "slow", "--part", f"{number}/3") for number in (1, 2, 3)]
    assert sorted(test for part in parts for test in part) == sorted(
        (name, test) for name in NAMES for test in ("slow", "case[1]")
    )
    assert all(parts)
    assert all(len([each for each in part if each[0] == name]) in {0, 2} for part in parts for name in NAMES)


@pytest.mark.parametrize("part", ["0/4", "5/4", "1", "1/0", "x/4", "1/4/2"])
def test_a_part_that_cannot_be_is_refused(tmp_path: Path, part: str) -> None:
    done = collect(tmp_path, "--part", part)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"--part {part}: the first of four parts is 1/4" in done.stderr
