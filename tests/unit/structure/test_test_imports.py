"""Test modules are not libraries: code that two folders share is in a helper module."""

from pathlib import PurePosixPath

from tests.unit.structure import ratchet
from tests.unit.structure.source_tree import Module, modules
from tests.unit.structure.test_imports import imported

KINDS = ("tests.integration", "tests.interop")
"""Kinds of tests that need a process, a service or a peer: unit tests import nothing of theirs."""


def is_test_module(name: str) -> bool:
    return name.rpartition(".")[2].startswith("test_")


def modules_of_tests() -> tuple[Module, ...]:
    """Return the modules below ``tests``."""
    return modules("tests")


def imports_of_other_folders() -> dict[str, int]:
    """Return the modules that import a test module of another folder, each with the number of these imports."""
    tree = modules_of_tests()
    names = frozenset(module.name for module in tree)
    found = {}
    for module in tree:
        folder = str(PurePosixPath(module.path).parent).replace("/", ".")
        foreign = {
            name for name in imported(module, names) if is_test_module(name) and name.rpartition(".")[0] != folder
        }
        if foreign:
            found[module.path] = len(foreign)
    return found


def imports_of_other_kinds() -> dict[str, int]:
    """Return the unit tests that import from integration or interop tests, each with the number of these imports."""
    tree = modules_of_tests()
    names = frozenset(module.name for module in tree)
    counts = {
        module.path: sum(name.startswith(KINDS) for name in set(imported(module, names)))
        for module in tree
        if module.name.startswith("tests.unit")
    }
    return {path: count for path, count in counts.items() if count}


RULES = {"test modules imported": imports_of_other_folders}


def test_no_test_module_is_imported_from_another_folder() -> None:
    ratchet.check("test modules imported", imports_of_other_folders())


def test_unit_tests_import_nothing_from_integration_or_interop() -> None:
    assert imports_of_other_kinds() == {}
