"""The tests that failed in the last run: a plugin that records them in ``.shale/failed_tests.json``."""

import json
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

RECORD = REPOSITORY / ".shale" / "failed_tests.json"


class FailureRecorder:
    """A plugin of the process that reports: with pytest-xdist the controller, else the only one."""

    def __init__(self, record: Path = RECORD) -> None:
        self._record = record
        self._failed: dict[str, None] = {}
        record.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the name of a test of which one phase has failed."""
        if report.failed:
            self._failed[without_group(report.nodeid)] = None

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the record; a run that did not get to its end has none."""
        if exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
            self._record.parent.mkdir(parents=True, exist_ok=True)
            self._record.write_text(json.dumps(list(self._failed)) + "\n")


def without_group(test: str) -> str:
    """Return the name of a test without the group that pytest-xdist appends."""
    name, _, group = test.rpartition("@")
    return name if name and "]" not in group else test


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder, except in the workers of pytest-xdist, whose reports reach the controller."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureRecorder(), "failure-recorder")


def load(record: Path = RECORD) -> list[str] | None:
    """Return the names of the tests that failed in the last run; None if it did not get to its end."""
    try:
        return [str(name) for name in json.loads(record.read_text())]
    except FileNotFoundError:
        return None
