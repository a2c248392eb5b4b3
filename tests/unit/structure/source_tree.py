"""The Python sources of the repository, parsed once for all structure tests."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from tests.paths import REPOSITORY

CODE = ("shared", "services")
GENERATED = "_generated"
MIRRORS = ("shared/shale/sync", "shared/shale/compat")
"""Packages that repeat the names of others on purpose: the blocking interface and the names of SlateDB's binding."""


@dataclass(frozen=True)
class Module:
    """One source file."""

    path: str
    """From the top of the repository, with slashes."""
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree, parsed when it is asked for."""
        return ast.parse(self.text)

    @property
    def name(self) -> str:
        """The dotted name under which it is imported."""
        parts = Path(self.path).with_suffix("").parts
        dotted = parts[1:] if parts[0] in CODE else parts
        return ".".join(dotted[:-1] if dotted[-1] == "__init__" else dotted)

    @property
    def is_package(self) -> bool:
        return self.path.endswith("/__init__.py")

    @property
    def is_mirror(self) -> bool:
        return self.path.startswith(MIRRORS)

    def classes(self) -> Iterator[ast.ClassDef]:
        """All classes, nested ones included."""
        return (node for _, node in _definitions(self.tree, "") if isinstance(node, ast.ClassDef))

    def functions(self) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        """All functions and methods, each with its qualified name."""
        for name, node in _definitions(self.tree, ""):
            if not isinstance(node, ast.ClassDef):
                yield name, node


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    """Yield every definition, also those inside of other statements; expressions define nothing."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield prefix + child.name, child
            yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _definitions(child, prefix)


@cache
def modules(*roots: str) -> tuple[Module, ...]:
    """Read every module below the folders; generated code is left out."""
    paths = [
        path for root in roots for path in sorted((REPOSITORY / root).rglob("*.py")) if GENERATED not in path.parts
    ]
    return tuple(Module(path.relative_to(REPOSITORY).as_posix(), path.read_text(encoding="utf-8")) for path in paths)


def code() -> tuple[Module, ...]:
    """The modules of the library and of the services."""
    return modules(*CODE)
