"""The pytest plugin of a mutation run: replaces the loop over the tests by one over the mutants.

pytest collects the tests once and imports all modules.  Each mutant is then a fork, which changes one function and runs
the tests that run its line until one fails; a fork takes milliseconds, where a new process would take seconds.
"""

import importlib
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.children import Children
from tests.mutation.line_trace import LineTrace
from tests.mutation.live_code import Functions, NotApplicableError, apply, live_functions
from tests.mutation.mutants import Mutant, mutants_of, mutated_tree
from tests.mutation.selection import SURVIVED, Baseline, Record, Result, load, save, within
from tests.paths import REPOSITORY

SHARES = 24
"""The tests are measured in so many forks: one that hangs or dies costs only its share."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of ``python -m tests.mutation``, which describes them."""
    group = parser.getgroup("mutation")
    group.addoption("--mutate", action="append", default=[])
    group.addoption("--mutation-folder", type=Path)
    group.addoption("--mutation-jobs", type=int, default=2)
    group.addoption("--mutation-budget", type=float, default=20.0)
    group.addoption("--mutation-seconds", type=float, default=3600.0)
    group.addoption("--mutation-seed", type=int, default=0)
    group.addoption("--mutation-again", action="store_true")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: Any) -> bool | None:
    """Run mutants in place of the tests."""
    packages: list[str] = session.config.getoption("mutate")
    if not packages:
        return None
    MutationRun(session, packages).run()
    return True


class MutationRun:
    """Runs the mutants of some packages."""

    def __init__(self, session: Any, packages: Sequence[str]) -> None:
        option = session.config.getoption
        self._items = {item.nodeid: item for item in session.items}
        self._folder: Path = option("mutation_folder")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._children = Children(option("mutation_jobs"))
        self._budget_s: float = option("mutation_budget")
        self._until_s = time.monotonic() + option("mutation_seconds")
        self._seed: int = option("mutation_seed")
        self._again: bool = option("mutation_again")
        self._modules = dict(_modules_of(packages))
        # Fixtures of all tests import the last one: each fork would do so again, in the time of its first test.
        for module in (*self._modules, "shale.engine.configure"):
            importlib.import_module(module)
        files = frozenset(map(str, self._modules.values()))
        self._functions = live_functions(files)
        self._trace = LineTrace(files)

    def run(self) -> None:
        """Measure the tests that no earlier run has measured; then run the mutants that have no result yet."""
        measured = self._folder / "baseline.json"
        baseline = load(measured) if measured.exists() else Baseline({}, {})
        new = [name for name in self._items if name not in baseline.seconds]
        if new:
            baseline = baseline.with_records(self._measured(new))
            save(measured, baseline)
        self._run_mutants(baseline)

    def _measured(self, names: Sequence[str]) -> list[Record]:
        shares = [share for place in range(SHARES) if (share := names[place::SHARES])]
        records: list[Record] = []

        def finish() -> None:
            for task, answer in self._children.ended():
                print(f"measured {task}: {'died' if answer is None else len(answer)}", flush=True)
                records.extend(json.loads(answer or b"[]"))

        for number, share in enumerate(shares):
            while self._children.is_full:
                finish()
            self._children.start(number, _measured(self._trace, [self._items[name] for name in share]), 1800)
        while not self._children.is_idle:
            finish()
        return records

    def _run_mutants(self, baseline: Baseline) -> None:
        results = self._folder / "results.jsonl"
        lines = results.read_text().splitlines() if results.exists() else []
        outcomes = {record["key"]: record["outcome"] for record in map(json.loads, lines)}
        done = {key for key, outcome in outcomes.items() if not (self._again and outcome in SURVIVED)}
        pending = [each for module, path in self._modules.items() for each in mutants_of(module, path)]
        pending = [each for each in pending if each.key not in done]
        random.Random(self._seed).shuffle(pending)  # a run that is stopped has a fair sample
        killers: defaultdict[str, dict[str, None]] = defaultdict(dict)
        with results.open("a", buffering=1) as file:

            def finish() -> None:
                for task, answer in self._children.ended():
                    assert isinstance(task, Planned)
                    result = task.result(answer)
                    if result.test is not None:
                        killers[result.mutant.function][result.test] = None
                    file.write(result.line())

            for place, mutant in enumerate(pending):
                if time.monotonic() > self._until_s:
                    break
                if place % 100 == 0:
                    print(f"{place} of {len(pending)} mutants", flush=True)
                path = self._modules[mutant.module]
                tests = baseline.tests_of(path, mutant.lines, killers[mutant.function])
                known = [test for test in tests if test in self._items]
                if not known:
                    file.write(Result(mutant, "uncovered", None, 0, complete=True).line())
                    continue
                planned = Planned(mutant, within(known, baseline.seconds, self._budget_s), len(known))
                while self._children.is_full:
                    finish()
                items = [self._items[name] for name in planned.tests]
                limit_s = 10 + 5 * sum(baseline.seconds[name] for name in planned.tests)
                self._children.start(planned, _mutated(mutant, path, self._functions, items), limit_s)
            while not self._children.is_idle:
                finish()


class Planned:
    """A mutant, and the tests that are to run on it."""

    def __init__(self, mutant: Mutant, tests: list[str], known: int) -> None:
        self.mutant = mutant
        self.tests = tests
        self._known = known

    def result(self, answer: bytes | None) -> Result:
        """Return the result that the answer of a child stands for."""
        if answer is None:
            return Result(self.mutant, "timeout", None, len(self.tests), complete=True)
        outcome, test, count = json.loads(answer)
        return Result(self.mutant, outcome, test, count, complete=len(self.tests) == self._known)


def _modules_of(packages: Iterable[str]) -> Iterable[tuple[str, Path]]:
    """Yield the modules of packages, such as ``shale.gc``, and their files."""
    for package in packages:
        folder = REPOSITORY / "shared" / package.replace(".", "/")
        for path in sorted(folder.rglob("*.py")):
            name = ".".join(path.relative_to(REPOSITORY / "shared").with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


def _measured(trace: LineTrace, items: Sequence[pytest.Item]) -> Callable[[], bytes]:
    def work() -> bytes:
        records = []
        for place, item in enumerate(items):
            following = items[place + 1] if place + 1 < len(items) else None
            start_s = time.perf_counter()
            with trace.recording() as lines:
                is_passed = _passes(item, following)
            took_s = time.perf_counter() - start_s
            found = {file: sorted(numbers) for file, numbers in lines.items()} if is_passed else {}
            records.append((item.nodeid, took_s, found))
        return json.dumps(records).encode()

    return work


def _mutated(mutant: Mutant, path: Path, functions: Functions, items: Sequence[pytest.Item]) -> Callable[[], bytes]:
    def work() -> bytes:
        try:
            apply(path, mutant.function, mutated_tree(path, mutant.number), functions)
        except NotApplicableError as error:
            return json.dumps(("skipped", str(error), 0)).encode()
        for place, item in enumerate(items):
            following = items[place + 1] if place + 1 < len(items) else None
            if not _passes(item, following):
                return json.dumps(("killed", item.nodeid, place + 1)).encode()
        return json.dumps(("survived", None, len(items))).encode()

    return work


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run one test; a skipped one passes."""
    reports = runtestprotocol(item, log=False, nextitem=following)
    return not any(report.failed for report in reports)
