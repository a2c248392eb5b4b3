"""Lets TLC search for a run of a model that has exactly the events of a trace (``schemas/models/*Trace.tla``)."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from tests.checks.models.checker import CheckerMissing, check, configuration
from tests.simulation.conftest import seeds

SEEDS = 3
SEEDS_MAX = 40
SEEDS_PER_RUN = 5
"""Java starts once for each run, and needs memory for all of its traces."""

T = TypeVar("T")
E = TypeVar("E", bound="tuple[Any, ...]")
_REACHED = re.compile(r'<<"reached", (\d+), (\d+)>>')


def first_deviations(
    module: str, traces: Sequence[Sequence[E]], *, constants: Mapping[str, object], definitions: Mapping[str, str]
) -> list[E | None]:
    """Return the first event of each trace for which the model has no step; ``None`` if the trace is a run of it.

    Args:
        module: extends the model; its constant ``Traces`` gets the traces.
        constants: its constants that a configuration can hold.
        definitions: the other ones, as expressions.

    Raises:
        CheckerMissing: TLC or Java is not there.
    """
    rows = ",\n".join("<<" + ", ".join(map(literal, trace)) + ">>" for trace in traces)
    expressions = {**definitions, "Traces": f"<<{rows}>>"}
    body = "\n".join([f"EXTENDS {module}", *(f"The{name} == {value}" for name, value in expressions.items())])
    replaced = "\n".join(f"  {name} <- The{name}" for name in expressions)
    config = configuration(constants, extra=f"CONSTANTS\n{replaced}\nSPECIFICATION TraceSpec\nCONSTRAINT Progress")
    outcome = check(body, config, is_short=True)
    reached = [1] * len(traces)
    for trace, step in _REACHED.findall(outcome.output):
        reached[int(trace) - 1] = max(reached[int(trace) - 1], int(step))
    return [trace[step - 1] if step <= len(trace) else None for trace, step in zip(traces, reached, strict=True)]


def checked(deviations: Callable[[Sequence[T]], list[E | None]], traces: Sequence[T]) -> list[E | None]:
    """Return the deviations of the traces; skip the test on a machine without the checker."""
    try:
        return deviations(traces)
    except CheckerMissing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def require_runs(record: Callable[[int], T], deviations: Callable[[Sequence[T]], list[E | None]]) -> None:
    """Check that the traces of all seeds are runs of the model."""
    chosen = seeds(SEEDS)[:SEEDS_MAX]
    for start in range(0, len(chosen), SEEDS_PER_RUN):
        block = chosen[start : start + SEEDS_PER_RUN]
        found = dict(zip(block, checked(deviations, [record(seed) for seed in block]), strict=True))
        assert set(found.values()) == {None}, f"first events by seed that the model does not allow: {found}"


def literal(value: object) -> str:
    """Return a value as TLA+ writes it: a tuple as a sequence, a frozenset as a set."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "<<" + ", ".join(map(literal, value)) + ">>"
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(literal, value))) + "}"
    return str(value)
