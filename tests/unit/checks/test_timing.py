"""Durations of tests are recorded, merged with earlier runs, and listed from the slowest."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests import timing

HERE = "tests/unit/checks/test_timing.py"


def reported(record: Path, *phases: tuple[str, float]) -> None:
    """Let a run report phases of tests, and end."""
    recorder = timing.DurationRecorder(record)
    for name, seconds in phases:
        recorder.pytest_runtest_logreport(cast("Any", SimpleNamespace(nodeid=name, duration=seconds)))
    recorder.pytest_sessionfinish()


def test_the_phases_of_a_test_are_added_up(tmp_path: Path) -> None:
    reported(tmp_path / "record", (f"{HERE}::test_a", 0.5), (f"{HERE}::test_a", 2.0), (f"{HERE}::test_b", 1.0))
    assert timing.load(tmp_path / "record") == {f"{HERE}::test_a": 2.5, f"{HERE}::test_b": 1.0}


def test_a_later_run_replaces_what_it_measured_and_keeps_the_rest(tmp_path: Path) -> None:
    record = tmp_path / "record"
    reported(record, (f"{HERE}::test_a", 0.5), (f"{HERE}::test_b", 1.0), ("tests/gone.py::test_c", 9.0))
    reported(record, (f"{HERE}::test_a", 3.0))
    assert timing.load(record) == {f"{HERE}::test_a": 3.0, f"{HERE}::test_b": 1.0}


def test_a_run_of_no_test_leaves_no_record(tmp_path: Path) -> None:
    reported(tmp_path / "record")
    assert timing.load(tmp_path / "record") == {}


def test_the_slowest_come_first() -> None:
    table = timing.report({"a": 1.0, "b": 30.0, "c": 2.0}, 2)
    assert table.splitlines() == ["    30.00 s  b", "     2.00 s  c", "    33.00 s  3 tests"]


def test_workers_of_xdist_leave_the_record_to_the_controller() -> None:
    registered: list[object] = []
    manager = SimpleNamespace(register=lambda plugin, _name: registered.append(plugin))
    timing.pytest_configure(cast("Any", SimpleNamespace(pluginmanager=manager, workerinput={})))
    assert not registered
    timing.pytest_configure(cast("Any", SimpleNamespace(pluginmanager=manager)))
    assert len(registered) == 1
