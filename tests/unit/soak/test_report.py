"""The report says what happened, and escapes what it shows."""

import json
from pathlib import Path

from tests.soak.history.operation import FINAL
from tests.soak.report.html import render
from tests.soak.report.result import Result, Verdict
from tests.soak.report.series import series_of
from tests.unit.soak.histories import Recorder


def result(*verdicts: Verdict) -> Result:
    history = Recorder()
    history.add("a", "write", "1", 10, 12)
    history.add("a", "write", "2", 20, 21, served_by="writer-2", outcome="unknown")
    history.add("a", "write", "3", 30, 31, served_by="writer-2")
    history.add(FINAL, "read", "3", 32, 33)
    series = series_of(history.operations, 10, 50)
    summary = {"seed": 7, "seconds": 40.0, "repeat": "python -m tests.soak --seed 7", "faults": {"kill": 1}}
    fault = {"at": 5.0, "kind": "kill", "target": "writer-a", "text": "SIGKILL", "until": None, "fault": 0}
    anomaly = {"kind": "lost update", "where": "k", "text": "<b>", "operations": ["a#1"]}
    exits = [{"instance": "writer-a.0", "code": -9, "at": 5.0, "injected": "kill"}]
    memory = {"writer-a": [(0.0, 1 << 20), (10.0, 2 << 20)]}
    return Result(summary, list(verdicts), [anomaly], [fault], exits, series, memory)


def test_the_series_of_a_history() -> None:
    series = result().series
    assert series.by_interface == {"http": {"ok": 2, "fail": 0, "unknown": 1}}
    assert series.takeovers == [(10, "writer-1"), (30, "writer-2")]
    assert series.longest_pause_s == 19
    assert max(series.latency(0.99)) == 2000


def test_the_page_has_everything_in_one_file() -> None:
    page = render(result(Verdict("nothing is lost", False, ("row <1>",), "9 rows")))
    assert "failed" in page
    assert "row &lt;1&gt;" in page
    assert "&lt;b&gt;" in page
    assert "kill of writer-a at 5.0 s: SIGKILL" in page
    assert "python -m tests.soak --seed 7" in page
    assert "src=" not in page
    assert "href=" not in page


def test_the_verdict_of_a_run(tmp_path: Path) -> None:
    good, bad = Verdict("a", True, ()), Verdict("b", False, ("x",))
    assert result(good).is_good
    assert not result(good, bad).is_good
    file = tmp_path / "report.json"
    result(good, bad).write_json(file)
    written = json.loads(file.read_text())
    assert (written["is_good"], written["summary"]["seed"], len(written["verdicts"])) == (False, 7, 2)
