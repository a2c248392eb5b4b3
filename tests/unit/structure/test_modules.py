"""Limits for packages and modules: 20 modules, 400 lines."""

from collections import Counter
from pathlib import PurePosixPath

from tests.unit.structure import ratchet
from tests.unit.structure.source_tree import code, modules

MODULES_MAX = 20
LINES_MAX = 400
LONG_FOR_A_REASON = {
    "shared/shale/kernels/source/merge/blocks.py": "numba inlines the steps of a merge only within one module",
    "tests/simulation/clones/test_clones.py": "the rows of one part of the fault catalogue",
    "tests/simulation/gc/test_checkpoints.py": "the rows of one part of the fault catalogue",
    "tests/simulation/gc/test_collector.py": "the rows of one part of the fault catalogue",
    "tests/simulation/gc/test_destroy.py": "the rows of one part of the fault catalogue",
    "tests/unit/admin/test_compactions.py": "every answer of one API",
    "tests/unit/admin/verify/test_damages.py": "one table of damages",
    "tests/unit/compactor/execution/test_executor.py": "every rule of one part",
    "tests/unit/compactor/execution/test_model.py": "one model of a compaction, and what compares with it",
    "tests/unit/deploy/alert_cases.py": "one table of alerts",
    "tests/unit/engine/test_db.py": "every rule of one part",
    "tests/unit/engine/test_db_reader.py": "every rule of one part",
    "tests/unit/engine/txn/test_transaction.py": "every rule of one part",
    "tests/unit/engine/wal/feed/test_feed.py": "every rule of one part",
    "tests/unit/sst/test_disk_cache.py": "every rule of one part",
    "tests/interop/compat/programs.py": "one program for two packages: every call of the public interface once",
    "tests/model/state_machine.py": "hypothesis finds the rules of a state machine in one class",
}


def packages_with_too_many_modules() -> dict[str, int]:
    """Count the modules of each folder, ``__init__`` and ``__main__`` aside."""
    found: Counter[str] = Counter()
    for module in (*code(), *modules("tests")):
        path = PurePosixPath(module.path)
        if path.name not in ("__init__.py", "__main__.py", "conftest.py"):
            found[path.parent.as_posix()] += 1
    return {folder: count for folder, count in found.items() if count > MODULES_MAX}


def modules_with_too_many_lines() -> dict[str, int]:
    """Count the lines of each module."""
    lines = {module.path: len(module.text.splitlines()) for module in (*code(), *modules("tests"))}
    return {path: count for path, count in lines.items() if count > LINES_MAX and path not in LONG_FOR_A_REASON}


RULES = {"package modules": packages_with_too_many_modules, "module lines": modules_with_too_many_lines}


def test_no_package_has_more_than_20_modules() -> None:
    ratchet.check("package modules", packages_with_too_many_modules())


def test_no_module_has_more_than_400_lines() -> None:
    ratchet.check("module lines", modules_with_too_many_lines())


def test_every_exception_is_still_needed() -> None:
    lines = {module.path: len(module.text.splitlines()) for module in (*code(), *modules("tests"))}
    assert not [path for path in LONG_FOR_A_REASON if lines.get(path, 0) <= LINES_MAX]
