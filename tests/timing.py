"""The time of each test: a plugin that records it, and ``python -m tests.timing`` that prints the slowest tests.

Seconds of set-up, call and tear-down are added up per test.  A run replaces what it measured and keeps the rest.
"""

import argparse
import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

RECORD = REPOSITORY / ".shale" / "test_durations.json"


class DurationRecorder:
    """A plugin of the process that reports: with pytest-xdist the controller, else the only one."""

    def __init__(self, record: Path = RECORD) -> None:
        self._record = record
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the seconds of one phase of a test."""
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the record."""
        if self._seconds:
            save(self._record, self._seconds)


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder, except in the workers of pytest-xdist, whose reports reach the controller."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(DurationRecorder(), "duration-recorder")


def load(record: Path = RECORD) -> dict[str, float]:
    """Return the recorded seconds of each test."""
    try:
        return {test: float(seconds) for test, seconds in json.loads(record.read_text()).items()}
    except FileNotFoundError:
        return {}


def save(record: Path, measured: dict[str, float]) -> None:
    """Merge seconds into the record; drop tests whose file no longer exists.

    The file is replaced as a whole, because two runs may end at once.
    """
    known = {test: seconds for test, seconds in load(record).items() if (REPOSITORY / test.partition("::")[0]).exists()}
    merged = known | {test: round(seconds, 3) for test, seconds in measured.items()}
    record.parent.mkdir(parents=True, exist_ok=True)
    written = record.with_name(f"{record.name}.{os.getpid()}")
    written.write_text(json.dumps(merged, indent=0, sort_keys=True) + "\n")
    written.replace(record)


def report(seconds: dict[str, float], count: int) -> str:
    """Return a table of the slowest tests and the sum of all."""
    slowest = sorted(seconds.items(), key=lambda each: -each[1])[:count]
    lines = [f"{taken:9.2f} s  {test}" for test, taken in slowest]
    return "\n".join([*lines, f"{sum(seconds.values()):9.2f} s  {len(seconds)} tests"])


def main() -> None:
    """Print the slowest tests of the record."""
    parser = argparse.ArgumentParser(prog="python -m tests.timing", description="Print the slowest tests.")
    parser.add_argument("--count", type=int, default=20, help="how many tests (20)")
    parser.add_argument("--by-file", action="store_true", help="add up the tests of each file")
    options = parser.parse_args()
    seconds = load()
    if options.by_file:
        files: defaultdict[str, float] = defaultdict(float)
        for test, taken in seconds.items():
            files[test.partition("::")[0]] += taken
        seconds = files
    print(report(seconds, options.count))


if __name__ == "__main__":
    main()
