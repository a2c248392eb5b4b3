"""Tests use the public interface: no attribute with a leading underscore on an object of the code."""

import ast

from tests.unit.structure import ratchet
from tests.unit.structure.source_tree import Module, modules

OWN = ("self", "cls")
PATCHES = ("setattr", "delattr", "getattr", "patch")
BREAKS_THE_CODE = "mutations.py"
"""Tests that take a rule out of the code and see that it is missed; they reach into it on purpose."""
REACH_INSIDE = {
    "tests/fuzz/targets/spark_tasks.py": "a connection has no socket",
    "tests/integration/store/test_local_sharing.py": "a sync must take long at one moment",
    "tests/simulation/writer/test_long_reads.py": "tells whether a scan was moved to another view",
    "tests/unit/client/test_client.py": "httpx has no public way to a client's transport",
    "tests/unit/compactor/execution/test_traces_from_writes.py": "holds a number at which nothing was written",
    "tests/unit/compat/test_handle_reports.py": "follows what a closed handle must not keep alive",
    "tests/unit/engine/load/test_target.py": "the store fails at one of two equal requests",
    "tests/unit/engine/read/test_active_seqs.py": "reads at a number that no snapshot holds",
    "tests/unit/engine/read/test_retained_views.py": "no view may stay pinned",
    "tests/unit/engine/scan/test_memory.py": "counts the buffers that stay in memory",
    "tests/unit/engine/write/test_closing.py": "a task of the writer fails, or the writer is aborted",
    "tests/unit/engine/write/test_segments.py": "a memtable is frozen at one moment",
    "tests/unit/engine/write/test_transaction_history.py": "follows a buffer that must be freed",
    "tests/unit/engine/write/test_writes.py": "a memtable must not be sorted, an L0 holds folded rows",
    "tests/unit/kernels/point_lookup/test_lookup.py": "counters that a kernel writes",
    "tests/unit/protocol/test_boundary.py": "the boundary of a store is tested alone",
    "tests/unit/spark/compaction/test_task_server.py": "waits until an attempt was refused",
    "tests/unit/sst/test_budget.py": "a cache claims more than it holds",
}
"""Tests that look into a part for what no caller may know, each with the reason."""
FOREIGN = {
    "_asdict": "namedtuple: public in spite of its name",
    "_replace": "namedtuple: public in spite of its name",
    "_fields": "namedtuple: public in spite of its name",
    "_jvm": "PySpark has no other way to its Java process",
    "_jdf": "PySpark has no other way to a query plan",
    "_repr_html_": "notebooks ask for it",
    "_ARRAY_API": "NumPy: what a C extension imports; its memory handler has no other interface",
    "_exit": "os: ends a process at once",
    "_run": "asyncio.Handle: every step of a loop passes here",
    "_asyncio_future_blocking": "the protocol between asyncio's tasks and what they wait for",
}
"""Names of other libraries, each with the reason for its use."""


def private_uses(module: Module) -> list[str]:
    """Return the private names that a test reads, calls or patches on other objects than its own."""
    own: set[str] = set()
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Attribute) and _is_private(node.attr):
            if isinstance(node.value, ast.Name) and node.value.id in OWN:
                own.add(node.attr)
            else:
                found.append(node.attr)
        elif isinstance(node, ast.Call) and _name_of(node.func) in PATCHES:
            names = [each.value for each in node.args[:2] if isinstance(each, ast.Constant)]
            found += [name.rpartition(".")[2] for name in names if isinstance(name, str)]
    return [name for name in found if _is_private(name) and name not in own]


def _name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in FOREIGN


def modules_with_private_uses() -> dict[str, int]:
    """Count the private uses of each test module."""
    counts = {
        module.path: len(private_uses(module))
        for module in modules("tests")
        if not module.path.endswith(BREAKS_THE_CODE) and module.path not in REACH_INSIDE
    }
    return {path: count for path, count in counts.items() if count}


def test_every_exception_is_still_needed() -> None:
    counts = {module.path: len(private_uses(module)) for module in modules("tests")}
    assert not [path for path in REACH_INSIDE if not counts.get(path)]


RULES = {"private attributes": modules_with_private_uses}


def test_tests_use_no_private_attributes() -> None:
    ratchet.check("private attributes", modules_with_private_uses())
