"""Which tests run which lines, and how long each test takes: chooses the tests of a mutant."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.mutation.mutants import Mutant
from tests.paths import REPOSITORY

Record: TypeAlias = tuple[str, float, Mapping[str, Iterable[int]]]
"""A test, its seconds, and the lines that it runs by file; none if it fails without a mutant."""
SURVIVED = ("survived", "uncovered")
"""Outcomes of mutants that no test has found."""


@dataclass
class Baseline:
    """The tests without a mutant.

    Attributes:
        seconds: the duration of each test, by its id.
        by_line: the tests that pass and run a line, by file and line.
    """

    seconds: dict[str, float]
    by_line: dict[str, dict[int, list[str]]]

    def with_records(self, records: Iterable[Record]) -> "Baseline":
        """Return this baseline with more tests."""
        seconds = dict(self.seconds)
        by_line = {file: {line: [*tests] for line, tests in lines.items()} for file, lines in self.by_line.items()}
        for test, took_s, lines in records:
            seconds[test] = round(took_s, 4)
            for file, numbers in lines.items():
                known = by_line.setdefault(file, {})
                for number in numbers:
                    known.setdefault(number, []).append(test)
        return Baseline(seconds, by_line)

    def tests_of(self, path: Path, lines: Sequence[int], first: Iterable[str] = ()) -> list[str]:
        """Return the tests that run one of the lines.

        ``first`` ones come first, then the unit tests of the same folder, then all others; of each, the fastest first.
        Tests of distant code run a line often and check it rarely.
        """
        known = self.by_line.get(str(path), {})
        found = {test for line in lines for test in known.get(line, ())}
        early = dict.fromkeys(test for test in first if test in found)
        near = f"tests/unit/{path.parent.relative_to(REPOSITORY).as_posix().removeprefix('shared/shale/')}/"
        order = sorted(found - early.keys(), key=lambda test: (not test.startswith(near), self.seconds[test]))
        return [*early, *order]


def within(tests: Sequence[str], seconds: Mapping[str, float], budget_s: float) -> list[str]:
    """Return the first tests that together take at most the budget, but at least one."""
    chosen, spent_s = [], 0.0
    for test in tests:
        spent_s += seconds[test]
        if chosen and spent_s > budget_s:
            break
        chosen.append(test)
    return chosen


def save(path: Path, baseline: Baseline) -> None:
    """Write a baseline; files are relative to the repository, and tests are numbers."""
    places = {test: place for place, test in enumerate(baseline.seconds)}
    by_line = {
        str(Path(file).relative_to(REPOSITORY)): {
            line: [places[test] for test in tests] for line, tests in lines.items()
        }
        for file, lines in baseline.by_line.items()
    }
    stored = {"tests": list(places), "seconds": list(baseline.seconds.values()), "by_line": by_line}
    path.write_text(json.dumps(stored))


def load(path: Path) -> Baseline:
    """Read what ``save`` wrote."""
    stored = json.loads(path.read_text())
    tests: list[str] = stored["tests"]
    by_line = {
        str(REPOSITORY / file): {int(line): [tests[place] for place in places] for line, places in lines.items()}
        for file, lines in stored["by_line"].items()
    }
    return Baseline(dict(zip(tests, stored["seconds"], strict=True)), by_line)


@dataclass(frozen=True)
class Result:
    """What became of a mutant.

    Attributes:
        outcome: ``killed``, ``timeout`` (counts as killed), ``survived``, ``uncovered`` (no test runs it), or
            ``skipped`` (its code cannot be replaced).
        test: the test that failed.
        tests: how many tests ran.
        complete: whether all tests that run the line were tried.
    """

    mutant: Mutant
    outcome: str
    test: str | None
    tests: int
    complete: bool

    def line(self) -> str:
        """Return the result as a line of JSON."""
        mutant = self.mutant
        fields = {
            "key": mutant.key,
            "place": f"{mutant.module}:{mutant.line}",
            "outcome": self.outcome,
            "test": self.test,
            "tests": self.tests,
            "complete": self.complete,
        }
        return json.dumps(fields) + "\n"
