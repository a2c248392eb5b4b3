"""Defects injected into the real code, and the number of seeds a scenario needs to find one."""

import ast
import inspect
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

SEEDS_MAX = 1000
MUTATION_SEEDS = 8
"""How many seeds at most find a defect that ``make sim`` must find soon."""
FAILING_SEEDS = Path(__file__).with_name("failing_seeds.json")
"""Seeds that found the defects of a test in an earlier search, where the first seed does not."""


def seed_that_fails(scenario: Callable[[int], object], seeds: int = SEEDS_MAX) -> int:
    """Return a seed below ``seeds`` that finds the defect; the result of an earlier search is tried first."""
    for seed in _order_of_search(seeds):
        try:
            scenario(seed)
        except AssertionError:  # a SimulationError is one, too
            return seed
    pytest.fail(f"{seeds} seeds found nothing")


def _order_of_search(seeds: int) -> Iterator[int]:
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    known = [seed for seed in json.loads(FAILING_SEEDS.read_text()).get(test, ()) if seed < seeds]
    yield from known
    yield from (seed for seed in range(seeds) if seed not in known)


def without_rule(monkeypatch: pytest.MonkeyPatch, module: ModuleType, rule: str) -> None:
    """Remove one rule from every function of a module: ``raise InvalidCompaction("V7", …)`` does nothing."""
    tree = _WithoutRaise(rule).visit(ast.parse(inspect.getsource(module)))
    assert isinstance(tree, ast.Module)
    changed: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(ast.fix_missing_locations(tree), f"<without {rule}>", "exec"), changed)
    for name, function in vars(module).items():
        if isinstance(function, FunctionType) and function.__module__ == module.__name__:
            monkeypatch.setattr(function, "__code__", changed[name].__code__)


class _WithoutRaise(ast.NodeTransformer):
    """Replaces the ``raise`` of one rule by ``pass``."""

    def __init__(self, rule: str) -> None:
        self.rule = rule

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        call = node.exc
        if isinstance(call, ast.Call) and call.args and getattr(call.args[0], "value", None) == self.rule:
            return ast.copy_location(ast.Pass(), node)
        return node
