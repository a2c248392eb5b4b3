"""Which failed runs of the suite may go on, and what the record of failures holds."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import failed_tests
from tests.checks.flaky import MOST, RUNS, judge
from tests.paths import REPOSITORY


def test_a_test_that_always_passes_alone_is_flaky() -> None:
    runs: list[str] = []

    def passes(test: str) -> bool:
        runs.append(test)
        return True

    assert judge(["a"], passes) == (True, ["flaky: a"])
    assert runs == ["a"] * RUNS


def test_one_failure_among_the_runs_is_a_failure() -> None:
    answers = iter([True] * (RUNS - 1) + [False])
    assert judge(["a"], lambda _: next(answers)) == (False, ["fails: a"])


@pytest.mark.parametrize("failed", [None, [], [str(number) for number in range(MOST + 1)]])
def test_other_ends_of_a_run_are_final(failed: list[str] | None) -> None:
    goes_on, lines = judge(failed, lambda _: True)
    assert not goes_on
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("option", "record"),
    [("-q", ["test_it.py::test_b[a@b]"]), ("--maxfail=1", ["test_it.py::test_b[a@b]"]), ("--no-such-option", None)],
)
def test_the_record_of_a_run(option: str, record: list[str] | None, tmp_path: Path) -> None:
    lines = ["import pytest", "def test_a(): pass", "@pytest.mark.parametrize('x', ['a@b'])", "def test_b(x): assert 0"]
    (tmp_path / "test_it.py").write_text("\n".join(lines))
    (tmp_path / "failed.json").write_text('["of another run"]')
    program = (
        "import sys, pathlib, pytest\n"
        "from tests.failed_tests import FailureRecorder\n"
        "recorder = FailureRecorder(pathlib.Path('failed.json'))\n"
        "pytest.main(['-p', 'no:cacheprovider', *sys.argv[1:]], plugins=[recorder])\n"
    )
    command = [sys.executable, "-c", program, option]
    # Installed plugins take more than a second to load and do not matter here.
    env = {"PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False)
    assert failed_tests.load(tmp_path / "failed.json") == record


@pytest.mark.parametrize(
    ("name", "bare"), [("t.py::a@g", "t.py::a"), ("t.py::a[x]@g", "t.py::a[x]"), ("t.py::a[x@y]", "t.py::a[x@y]")]
)
def test_groups_of_workers_are_no_part_of_a_name(name: str, bare: str) -> None:
    assert failed_tests.without_group(name) == bare
