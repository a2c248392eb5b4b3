"""Every test can fail: it checks something, or says here why to return without an error is its subject."""

import ast
from typing import NamedTuple

from tests.unit.structure.source_tree import Module, modules

_WORDS = ("raises", "warns", "fail_after", "timeout")
_NO_ERROR = "to return without an error is what it asserts"
CHECKED_ELSEWHERE = {
    "tests/integration/store/test_adapters.py": "calls the suite that all stores share",
    "tests/integration/two_phase/test_conformance.py": "calls the suite that all stores share",
    "tests/model/test_adapters.py": "the machine checks every step",
    "tests/unit/engine/test_wal_backend.py": _NO_ERROR,
    "tests/unit/spark/compaction/test_executor.py": _NO_ERROR,
    "tests/unit/store/test_preflight.py": _NO_ERROR,
    "tests/unit/testing/test_serializability.py": _NO_ERROR,
    "tests/unit/protocol/test_manifest_invariants.py": _NO_ERROR,
    "tests/unit/compactor/worker/test_progress_checks.py": _NO_ERROR,
    "tests/unit/deploy/test_chart_values.py": _NO_ERROR,
    "tests/unit/service/config/test_exposed_ports.py": _NO_ERROR,
}
"""Modules with tests that call no check of this repository, each with the reason."""


class _Facts(NamedTuple):
    """What a function does: it checks something itself, and calls functions of these names."""

    place: str
    name: str
    checks: bool
    calls: frozenset[str]


def _facts(module: Module, name: str, function: ast.AST, line: int) -> _Facts:
    calls, checks = set(), False
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            calls.add(called)
            checks = checks or any(word in called for word in _WORDS)
        checks = checks or isinstance(node, ast.Assert | ast.Raise)
    return _Facts(f"{module.path}:{line}", name.rpartition(".")[2], checks, frozenset(calls))


def test_every_test_checks_something() -> None:
    """Itself, or by a function of the tests that does."""
    facts = [
        _facts(module, name, node, node.lineno) for module in modules("tests") for name, node in module.functions()
    ]
    helpers = {each.name for each in facts if each.checks}
    while new := {each.name for each in facts if each.name not in helpers and each.calls & helpers}:
        helpers |= new
    without = {
        f"{each.place} {each.name}"
        for each in facts
        if each.name.startswith("test_") and not each.checks and not each.calls & helpers
    }
    unexplained = {each for each in without if each.partition(":")[0] not in CHECKED_ELSEWHERE}
    assert unexplained == set()
    assert CHECKED_ELSEWHERE.keys() == {each.partition(":")[0] for each in without}


def test_no_assertion_is_always_true() -> None:
    """A tuple, a constant, or ``or True`` at its end."""
    found = set()
    for module in modules("tests"):
        if "assert" not in module.text:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Assert):
                test = node.test
                last = test.values[-1] if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else test
                if isinstance(last, ast.Tuple | ast.JoinedStr) or (isinstance(last, ast.Constant) and last.value):
                    found.add(f"{module.path}:{node.lineno}")
    assert found == set()
