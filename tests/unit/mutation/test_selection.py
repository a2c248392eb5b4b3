"""The tests of a mutant, and the judgement of a run."""

import json
from pathlib import Path

import pytest

from tests.mutation.line_trace import LineTrace
from tests.mutation.report import judge, score_of
from tests.mutation.selection import Baseline, Record, load, save, within
from tests.paths import REPOSITORY

A, B, C = (REPOSITORY / name for name in ("a.py", "b.py", "c.py"))


def test_tests_of_a_line_come_fastest_first_after_those_that_killed_before(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    records: list[Record] = [
        ("slow", 2.0, {str(A): [1, 2]}),
        ("fast", 0.1, {str(A): [2]}),
        ("other", 0.5, {str(B): [2]}),
    ]
    save(path, Baseline({}, {}).with_records(records))
    baseline = load(path)
    assert baseline.tests_of(A, (2,)) == ["fast", "slow"]
    assert baseline.tests_of(A, (1, 2), ["slow", "other"]) == ["slow", "fast"]
    assert baseline.tests_of(A, (3,)) == []


def test_unit_tests_of_the_same_folder_come_before_all_others() -> None:
    module = REPOSITORY / "shared" / "shale" / "engine" / "write" / "batch.py"
    names = {
        "tests/unit/engine/test_db.py::a": 0.1,
        "tests/unit/engine/write/test_batch.py::a": 0.4,
        "tests/unit/engine/write/takeover/test_claim.py::a": 0.3,
        "tests/model/test_model.py::a": 0.2,
        "tests/unit/engine/write/test_batch.py::b": 0.5,
    }
    baseline = Baseline({}, {}).with_records((name, took_s, {str(module): [1]}) for name, took_s in names.items())
    assert baseline.tests_of(module, (1,), ["tests/unit/engine/write/test_batch.py::b"]) == [
        "tests/unit/engine/write/test_batch.py::b",
        "tests/unit/engine/write/takeover/test_claim.py::a",
        "tests/unit/engine/write/test_batch.py::a",
        "tests/unit/engine/test_db.py::a",
        "tests/model/test_model.py::a",
    ]


def test_tests_that_are_measured_later_join_the_others() -> None:
    first = Baseline({}, {}).with_records([("old", 1.0, {str(A): [1]}), ("fails", 0.1, {})])
    both = first.with_records([("new", 0.5, {str(A): [1, 2], str(C): [7]})])
    assert both.tests_of(A, (1,)) == ["new", "old"]
    assert both.tests_of(C, (7,)) == ["new"]
    assert set(both.seconds) == {"old", "fails", "new"}
    assert first.tests_of(A, (1,)) == ["old"]


@pytest.mark.parametrize(("budget_s", "expected"), [(0, ["a"]), (3, ["a", "b"]), (9, ["a", "b", "c"])])
def test_a_budget_limits_the_tests_of_a_mutant(budget_s: float, expected: list[str]) -> None:
    assert within(["a", "b", "c"], {"a": 1, "b": 2, "c": 3}, budget_s) == expected


def test_a_trace_records_lines_of_its_files_only() -> None:
    trace = LineTrace(frozenset({score_of.__code__.co_filename}))
    with trace.recording() as lines:
        score_of({"killed": 1})
    first = score_of.__code__.co_firstlineno
    assert {file: sorted(numbers) for file, numbers in lines.items()} == {
        score_of.__code__.co_filename: [first + 2, first + 3]
    }


def test_a_report_fails_for_survivors_and_low_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def write(*outcomes: str) -> None:
        records = [
            {"key": f"p.m:f: x{place}", "place": "p.m:1", "outcome": outcome, "tests": 1, "complete": True}
            for place, outcome in enumerate(outcomes)
        ]
        (tmp_path / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))

    write("killed", "timeout", "skipped")
    assert judge(tmp_path, ["p"], score_min=0.9) == 0
    assert "p: 100.0%" in capsys.readouterr().out
    write("killed", "survived")
    assert judge(tmp_path, ["p"], score_min=0.5) == 1
    assert "survived (1 tests)  p.m:1  p.m:f: x1" in capsys.readouterr().out


def test_a_run_without_a_mutant_is_not_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It ended while it measured the tests, or no package has the name."""
    assert judge(tmp_path, ["p"], score_min=0.9) == 1
    (tmp_path / "results.jsonl").touch()
    assert judge(tmp_path, ["p"], score_min=0.9) == 1
    assert capsys.readouterr().out.count("no results") == 2
