"""``pytest --fault`` runs the tests of a part or of a row of the fault catalogue."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault_selection import is_of
from tests.paths import PYTHONPATH

TESTS = """
import pytest

@pytest.mark.fault("F2.4")
def test_two_four(): ...

@pytest.mark.fault("F2.41", "F3.1")
def test_two_forty_one_and_three_one(): ...

@pytest.mark.parametrize("case", [pytest.param(0, marks=pytest.mark.fault("F2.4b"))])
def test_two_four_b(case): ...

def test_without_a_row(): ...
"""


def collect(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_marked.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "/dev/null",
        "--rootdir",
        str(folder),
        "-p",
        "tests.fault_selection",
    ]
    return subprocess.run(
        [*command, "--strict-markers", "--collect-only", "-q", *arguments, str(folder)],
        capture_output=True,
        text=True,
        # Installed plugins take two seconds to load and do not matter here.
        env={"PYTHONPATH": PYTHONPATH, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=folder,
        check=False,
    )


@pytest.mark.parametrize(
    ("rows", "selected"),
    [
        ((), ["two_four", "two_forty_one_and_three_one", "two_four_b[0]", "without_a_row"]),
        (("F2",), ["two_four", "two_forty_one_and_three_one", "two_four_b[0]"]),
        (("F2.4",), ["two_four"]),
        (("F2.4", "F3"), ["two_four", "two_forty_one_and_three_one"]),
        (("F5",), []),
    ],
)
def test_the_tests_of_the_rows_are_selected(tmp_path: Path, rows: tuple[str, ...], selected: list[str]) -> None:
    done = collect(tmp_path, *(f"--fault={row}" for row in rows))
    found = [line.partition("::test_")[2] for line in done.stdout.splitlines() if "::" in line]
    assert found == selected, done.stdout + done.stderr


def test_what_is_no_row_is_refused(tmp_path: Path) -> None:
    done = collect(tmp_path, "--fault=2.4")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "a part is named F2, a row F2.4" in done.stderr


def test_a_row_belongs_to_its_part_alone() -> None:
    assert is_of("F2.4", ["F2"])
    assert not is_of("F2.4", ["F2.41"])
    assert not is_of("F21.4", ["F2"])
