"""``python -m tests.checks.models [--quick]``: check the models, and that the checker finds each mutation.

Prints one line a run: the number of states, and the length of the counterexample of a mutation, which is kept in
``.shale/models``.  The exit code is 1 if a property of a model is violated, or a mutation was not found.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.checks.models.checker import CheckerMissing, Outcome, check, configuration, fetch, settings
from tests.paths import REPOSITORY

KEPT = REPOSITORY / ".shale/models"
_INTERCHANGEABLE = ("Writers", "Collectors")
_SAME = "none"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the checker.

    Args:
        model: the name of the module.
        bounds: its constants, without the mutation; a set of processes is given by their number.
        mutation: the defect; ``none`` is the protocol as it is.
        breaks: the property that the mutation violates.
        checks_only_this: leave the other properties out, which it violates earlier.
        is_short: the run takes seconds.
    """

    model: str
    bounds: Mapping[str, Any]
    mutation: str = _SAME
    breaks: str | None = None
    checks_only_this: bool = False
    is_short: bool = True


def runs(*, quick: bool) -> Iterator[Run]:
    """Yield all runs that ``models.toml`` declares."""
    for model, declared in settings().items():
        if model == "checker":
            continue
        small = declared["quick"]
        if quick:
            yield Run(model, small)
        else:
            for bounds in declared["whole"]:
                yield Run(model, bounds, is_short=False)
        for mutation, expected in declared["mutations"].items():
            bounds = small | expected.get("bounds", {})
            is_deep = expected.get("is_deep", False)
            if is_deep and quick:
                continue
            yield Run(model, bounds, mutation, expected["breaks"], is_short=not is_deep)
            if "loses" in expected and not quick:
                yield Run(model, bounds, mutation, expected["loses"], checks_only_this=True)


def execute(run: Run) -> Outcome:
    """Check the model of a run."""
    declared = settings()[run.model]
    sets = [name for name in _INTERCHANGEABLE if name in run.bounds]
    names = {name: [f"{name[0].lower()}{number}" for number in range(run.bounds[name])] for name in sets}
    symmetry = " \\cup ".join(f"Permutations({name})" for name in sets)
    chosen = [run.breaks] if run.checks_only_this else declared["invariants"] + declared["properties"]
    config = configuration(
        {**run.bounds, **names, "Mutation": run.mutation},
        invariants=[name for name in chosen if name in declared["invariants"]],
        properties=[name for name in chosen if name in declared["properties"]],
        extra="SPECIFICATION Spec\nSYMMETRY Same",
    )
    body = f"EXTENDS {run.model}, TLC\nSame == {symmetry}"
    return check(body, config, is_short=run.is_short, workers=1 if run.is_short else 2)


def report(run: Run, outcome: Outcome, seconds: float) -> bool:
    """Print the line of a run; return whether it is as expected."""
    as_expected = outcome.violated == run.breaks and (run.breaks is not None or outcome.is_complete)
    if run.mutation == _SAME:
        subject, result = ", ".join(f"{key} {value}" for key, value in run.bounds.items()), "every property holds"
    else:
        subject, result = f'mutation "{run.mutation}"', f"violates {outcome.violated} after {outcome.steps} steps"
    if outcome.violated is not None:
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / f"{run.model}-{run.mutation.replace(' ', '-')}.txt").write_text(outcome.output)
    if not as_expected:
        result += f"; expected: {run.breaks or 'nothing is violated'}: FAILED"
    print(f"{run.model}: {subject}: {outcome.states:,} states, {seconds:.0f} s: {result}", flush=True)
    return as_expected


def main() -> int:
    """Run everything; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks.models", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small bounds, less than a minute")
    parser.add_argument("--only", default="", help="only runs whose mutation contains this text")
    arguments = parser.parse_args()
    try:
        fetch()
    except CheckerMissing as error:
        print(error, file=sys.stderr)
        return 1

    def timed(run: Run) -> bool:
        started = time.monotonic()
        return report(run, execute(run), time.monotonic() - started)

    declared = [run for run in runs(quick=arguments.quick) if arguments.only in run.mutation]
    long, short = ([run for run in declared if run.is_short is kind] for kind in (False, True))
    passed = [timed(run) for run in long]
    with ThreadPoolExecutor(2) as pool:
        passed += pool.map(timed, short)
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
