"""Puts the code of a mutant into the functions of this process."""

import ast
import gc
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import TypeAlias

Functions: TypeAlias = Mapping[tuple[str, str, int], list[FunctionType]]
"""Functions by file, qualified name and first line: a property has several functions of one name."""


class NotApplicableError(Exception):
    """The function of a mutant does not exist in this process, or its code cannot be replaced."""


def live_functions(files: frozenset[str]) -> Functions:
    """Return all functions of some files that exist in this process, also those that decorators wrap."""
    gc.unfreeze()  # otherwise frozen objects are not listed
    found: defaultdict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename in files:
            code = each.__code__
            found[code.co_filename, code.co_qualname, code.co_firstlineno].append(each)
    return dict(found)


def apply(path: Path, function: str, tree: ast.Module, functions: Functions) -> None:
    """Replace the code of a function by that of a mutated tree of its module.

    Raises:
        NotApplicableError: there is no such function, or its free variables differ.
    """
    applied = 0
    for code in _codes(compile(tree, str(path), "exec")):
        if code.co_qualname != function:
            continue
        for each in functions.get((str(path), function, code.co_firstlineno), ()):
            if each.__code__.co_freevars != code.co_freevars:
                raise NotApplicableError(f"{function}: the free variables differ")
            each.__code__ = code
            applied += 1
    if not applied:
        raise NotApplicableError(f"{function}: not found in this process")


def _codes(module: CodeType) -> Iterator[CodeType]:
    """Yield the code of all functions of a module and its classes, but not of nested functions."""
    for each in module.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & 0x2:  # CO_NEWLOCALS: a function; a class body has no such flag
                yield each
            else:
                yield from _codes(each)
