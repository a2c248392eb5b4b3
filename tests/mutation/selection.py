"""Which tests run which lines, and how long each test takes: chooses the tests of a mutant."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutants import Mutant


@dataclass
class Baseline:
    """The tests without a mutant.

    Attributes:
        seconds: the duration of each test that passes, by its id.
        by_line: the tests that run a line, by file and line.
    """

    seconds: dict[str, float]
    by_line: dict[str, dict[int, list[str]]]

    def tests_of(self, path: Path, lines: Sequence[int], first: Iterable[str] = ()) -> list[str]:
        """Return the tests that run one of the lines: ``first`` ones first, then the fastest."""
        known = self.by_line.get(str(path), {})
        found = {test for line in lines for test in known.get(line, ())}
        early = dict.fromkeys(test for test in first if test in found)
        return [*early, *sorted(found - early.keys(), key=lambda test: self.seconds[test])]


def within(tests: Sequence[str], seconds: Mapping[str, float], budget_s: float) -> list[str]:
    """Return the first tests that together take at most the budget, but at least one."""
    chosen, spent_s = [], 0.0
    for test in tests:
        spent_s += seconds[test]
        if chosen and spent_s > budget_s:
            break
        chosen.append(test)
    return chosen


def save(path: Path, records: Iterable[tuple[str, float, Mapping[str, Iterable[int]]]]) -> None:
    """Write the results of tests that passed: id, seconds, and lines by file."""
    tests: list[str] = []
    seconds: list[float] = []
    by_line: defaultdict[str, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for test, took_s, lines in records:
        for file, numbers in lines.items():
            for number in numbers:
                by_line[file][number].append(len(tests))
        tests.append(test)
        seconds.append(round(took_s, 4))
    path.write_text(json.dumps({"tests": tests, "seconds": seconds, "by_line": by_line}))


def load(path: Path) -> Baseline:
    """Read what ``save`` wrote."""
    stored = json.loads(path.read_text())
    tests: list[str] = stored["tests"]
    by_line = {
        file: {int(line): [tests[place] for place in places] for line, places in lines.items()}
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
