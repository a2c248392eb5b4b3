"""Defects injected into the real code, and the number of seeds a scenario needs to find one."""

import ast
import inspect
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import pytest

SEEDS_MAX = 1000


def first_seed_that_fails(scenario: Callable[[int], object], seeds: int = SEEDS_MAX) -> int:
    """Return the number of the first seed that finds the defect."""
    for seed in range(seeds):
        try:
            scenario(seed)
        except AssertionError:  # a SimulationError is one, too
            return seed
    pytest.fail(f"{seeds} seeds found nothing")


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
