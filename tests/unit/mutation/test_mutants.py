"""The changes that a mutation run makes, and how they get into functions."""

import ast
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.live_code import NotApplicableError, apply, live_functions
from tests.mutation.mutants import mutants_of, mutated_tree


def changes(tmp_path: Path, body: str) -> list[tuple[str, str]]:
    """Return the changes of a function with this body, and what its first line then is."""
    path = tmp_path / "sample.py"
    path.write_text(f"def f(a, b, log):\n    {body}\n")
    found = []
    for mutant in mutants_of("sample", path):
        function = mutated_tree(path, mutant.number).body[0]
        assert isinstance(function, ast.FunctionDef)
        found.append((mutant.change, ast.unparse(function.body[0]).replace("\n    ", " ")))
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = a < b", [("Lt to LtE", "a = a <= b")]),
        ("a = b is not None", [("IsNot to Is", "a = b is None")]),
        ("a = a and b", [("And to Or", "a = a or b")]),
        ("a = a + 1", [("Add to Sub", "a = a - 1"), ("1 to 2", "a = a + 2")]),
        ("a += b", [("removed", "if False: a += b"), ("Add to Sub", "a -= b")]),
        ("a = not b", [("not removed", "a = bool(b)")]),
        ("a = -b", [("minus removed", "a = +b")]),
        ("a = True", [("True to False", "a = False")]),
        ("a = min(a, b)", [("min to max", "a = max(a, b)")]),
        ("return a", [("returns None", "return None if True else a")]),
        ("a.x = b", [("removed", "if False: a.x = b")]),
        ("raise a", [("removed", "if False: raise a")]),
        ("b(a)", [("removed", "if False: b(a)")]),
        ("a = b if a else a", [("condition negated", "a = b if not a else a")]),
        ("return None", []),
        ("return False", [("False to True", "return True")]),
        ("assert a < b", []),
        ("a = f'{a + b}'", []),
        ("log.info(a + b)", []),
    ],
)
def test_one_operation_changes_at_a_time(tmp_path: Path, body: str, expected: list[tuple[str, str]]) -> None:
    assert changes(tmp_path, body) == expected


MODULE = """
class Sample:
    def __init__(self):
        self.total = 1

    @property
    def doubled(self):
        return self.total * 2

    @doubled.setter
    def doubled(self, value):
        self.total = value // 2


def outer(limit):
    def inner():
        return limit - 1
    return inner()
"""


@pytest.fixture
def sample(tmp_path: Path) -> ModuleType:
    path = tmp_path / "sample_of_mutation.py"
    path.write_text(MODULE)
    spec = spec_from_file_location("sample_of_mutation", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_mutant_changes_functions_that_exist_already(sample: ModuleType) -> None:
    path = Path(str(sample.__file__))
    functions = live_functions(frozenset({str(path)}))
    thing = sample.Sample()
    by_key = {mutant.key: mutant for mutant in mutants_of("m", path)}

    def mutate(key: str) -> None:
        mutant = by_key[key]
        apply(path, mutant.function, mutated_tree(path, mutant.number), functions)

    thing.doubled = 8
    assert (thing.total, thing.doubled, sample.outer(3)) == (4, 8, 2)
    mutate("m:Sample.doubled: Mult to FloorDiv: return self.total * 2")
    assert thing.doubled == 2
    mutate("m:Sample.doubled: FloorDiv to Mult: self.total = value // 2")
    thing.doubled = 8
    assert thing.total == 16
    mutate("m:outer: Sub to Add: return limit - 1")
    assert sample.outer(3) == 4


def test_a_function_that_does_not_exist_is_told(sample: ModuleType) -> None:
    path = Path(str(sample.__file__))
    with pytest.raises(NotApplicableError, match="outer: not found"):
        apply(path, "outer", mutated_tree(path, 0), {})
    assert "sample_of_mutation" not in sys.modules


def test_a_mutant_names_all_lines_of_its_statement(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text("def f(a, b):\n    if (\n        a\n        < b\n    ):\n        return 1\n")
    by_change = {mutant.change: mutant.lines for mutant in mutants_of("m", path)}
    assert by_change == {"Lt to LtE": (2, 3, 4), "returns None": (6,), "1 to 2": (6,)}


def test_equal_changes_of_equal_lines_have_keys_of_their_own(tmp_path: Path) -> None:
    """Otherwise the outcome of one would hide that of another."""
    path = tmp_path / "sample.py"
    path.write_text("def f(a):\n    if a < 2 and a < 3:\n        a += b\n    a += b\n\n\ndef g(a):\n    a += b\n")
    assert [mutant.key for mutant in mutants_of("m", path) if mutant.change in ("Lt to LtE", "removed")] == [
        "m:f: Lt to LtE: if a < 2 and a < 3:",
        "m:f: Lt to LtE (2): if a < 2 and a < 3:",
        "m:f: removed: a += b",
        "m:f: removed (2): a += b",
        "m:g: removed: a += b",
    ]
