"""The mutants of a module: small changes of one operation inside a function.

Not mutated, as no test should depend on them: log lines, messages of errors, assertions (they tell the type checker
what is known), ``__repr__``, and text.  Constants of modules and defaults of arguments are evaluated before a mutant is
applied, so they are left out, too.
"""

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

_PAIRS: Sequence[tuple[type[ast.AST], type[ast.AST]]] = list(
    zip(
        (ast.Lt, ast.Gt, ast.Eq, ast.Is, ast.In, ast.And, ast.Add, ast.Mult, ast.LShift, ast.BitAnd),
        (ast.LtE, ast.GtE, ast.NotEq, ast.IsNot, ast.NotIn, ast.Or, ast.Sub, ast.FloorDiv, ast.RShift, ast.BitOr),
        strict=True,
    )
)
_OPERATORS: dict[type[ast.AST], type[Any]] = {
    **{before: after for pair in _PAIRS for before, after in (pair, pair[::-1])},
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_NEGATED = (ast.Name, ast.Attribute, ast.Call, ast.Await)
"""Conditions that have no operator which another mutant changes."""
_LOGGERS = frozenset({"log", "_log", "logger"})
_UNTESTED = frozenset({"__repr__", "__str__"})

Change: TypeAlias = Callable[[], None]
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Node: TypeAlias = ast.stmt | ast.expr


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes:
        module: the module's dotted name.
        function: the qualified name of the outermost function, whose code is replaced.
        line: where the changed node starts.
        lines: those that a test runs if it runs the change: from the start of the statement to the end of the node.
        change: what is changed.
        source: the source of the changed line, without indentation.
        number: its place among all mutants of the module.
        repeat: its place among those of the module that differ in the line alone, from 1.
    """

    module: str
    function: str
    line: int
    lines: tuple[int, ...]
    change: str
    source: str
    number: int
    repeat: int

    @property
    def key(self) -> str:
        """A name that stays the same while other lines change."""
        change = self.change if self.repeat == 1 else f"{self.change} ({self.repeat})"
        return f"{self.module}:{self.function}: {change}: {self.source}"


@dataclass(frozen=True)
class _Site:
    function: str
    line: int
    lines: tuple[int, ...]
    change: str
    apply: Change


def mutants_of(module: str, path: Path) -> list[Mutant]:
    """Return all mutants of a module, in the order of the source."""
    text = path.read_text()
    lines = text.splitlines()
    repeats: Counter[tuple[str, str, str]] = Counter()
    mutants = []
    for number, site in enumerate(_sites(ast.parse(text))):
        source = lines[site.line - 1].strip()
        equal = site.function, site.change, source
        repeats[equal] += 1
        mutants.append(
            Mutant(module, site.function, site.line, site.lines, site.change, source, number, repeats[equal])
        )
    return mutants


def mutated_tree(path: Path, number: int) -> ast.Module:
    """Return the syntax tree of a module with one mutant applied."""
    tree = ast.parse(path.read_text())
    for place, site in enumerate(_sites(tree)):
        if place == number:
            site.apply()
            return ast.fix_missing_locations(tree)
    raise IndexError(f"{path} has no mutant {number}")


def _sites(tree: ast.Module) -> Iterator[_Site]:
    for name, function in _functions(tree.body, ""):
        if function.name in _UNTESTED:
            continue
        for node, start, change, apply in _changes_of_body(function):
            yield _Site(name, node.lineno, tuple(range(start, (node.end_lineno or node.lineno) + 1)), change, apply)


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Function]]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if not any(isinstance(each, ast.Name) and each.id == "overload" for each in statement.decorator_list):
                yield prefix + statement.name, statement
        elif isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, f"{prefix}{statement.name}.")


def _changes_of_body(function: Function) -> Iterator[tuple[Node, int, str, Change]]:
    """Yield the changed node, the line at which its statement starts, the change and how to apply it."""
    pending: list[tuple[ast.AST, list[ast.stmt] | None, int]] = [
        (each, function.body, each.lineno) for each in reversed(function.body)
    ]
    while pending:
        node, siblings, start = pending.pop()
        if _is_untested(node):
            continue
        if isinstance(node, ast.stmt):
            start = node.lineno
            if siblings is not None:
                yield from ((node, start, *each) for each in _statement_changes(node, siblings))
        if isinstance(node, ast.stmt | ast.expr):
            yield from ((node, start, *each) for each in _expression_changes(node))
        pending.extend((child, body, start) for child, body in reversed(list(_children(node))))


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, list[ast.stmt] | None]]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "args") and isinstance(
            node, ast.AnnAssign | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        ):
            continue
        if isinstance(value, list):
            is_body = bool(value) and isinstance(value[0], ast.stmt)
            yield from ((each, value if is_body else None) for each in value if isinstance(each, ast.AST))
        elif isinstance(value, ast.AST):
            yield value, None


def _is_untested(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Pass():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))) if name in _LOGGERS:
            return True
        case _:
            return False


def _statement_changes(node: ast.stmt, siblings: list[ast.stmt]) -> Iterator[tuple[str, Change]]:
    def replace(by: ast.stmt) -> Change:
        def apply() -> None:
            siblings[siblings.index(node)] = ast.copy_location(by, node)

        return apply

    match node:
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
            pass
        case ast.Expr() | ast.Raise() | ast.Delete():
            yield "removed", replace(_never(node))
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]) | ast.AugAssign():
            yield "removed", replace(_never(node))
        case ast.Return(value=value) if value is not None and not _is_falsy(value):
            none_instead = ast.IfExp(ast.Constant(True), ast.Constant(None), value)
            yield "returns None", replace(ast.Return(none_instead))
        case ast.Continue():
            yield "continue to break", replace(ast.Break())
        case ast.Break():
            yield "break to continue", replace(ast.Continue())


def _never(node: ast.stmt) -> ast.If:
    """Return a statement that keeps the names of another one, but does nothing.

    Code can be replaced only by code with the same free variables.
    """
    return ast.If(ast.Constant(False), [node], [])


def _expression_changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    match node:
        case ast.Compare(ops=[operator]) if changed := _OPERATORS.get(type(operator)):
            yield _name(operator, changed), lambda: node.ops.__setitem__(0, changed())
        case ast.BoolOp(op=operator) | ast.BinOp(op=operator) | ast.AugAssign(op=operator) if changed := (
            _OPERATORS.get(type(operator))
        ):
            yield _name(operator, changed), lambda: setattr(node, "op", changed())
        case ast.UnaryOp(op=ast.Not()):
            yield "not removed", lambda: _become(node, ast.Call(_BOOL, [node.operand], []))
        case ast.UnaryOp(op=ast.USub()):
            yield "minus removed", lambda: _become(node, ast.UnaryOp(ast.UAdd(), node.operand))
        case ast.Constant(value=bool(truth)):
            yield f"{truth} to {not truth}", lambda: setattr(node, "value", not truth)
        case ast.Constant(value=int(number) | float(number)):
            yield f"{number} to {number + 1}", lambda: setattr(node, "value", number + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield f"{name} to {_CALLS[name]}", lambda: setattr(node.func, "id", _CALLS[name])
        case ast.If() | ast.While() | ast.IfExp() if isinstance(
            node.test, ast.Name | ast.Attribute | ast.Call | ast.Await
        ):
            test = node.test
            yield "condition negated", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))


_BOOL = ast.Name("bool", ast.Load())


def _become(node: ast.AST, other: ast.AST) -> None:
    """Turn a node into another one in its place."""
    other = copy.copy(other)
    location = {name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
    node.__class__ = other.__class__  # type: ignore[assignment]  # the parent keeps its reference
    node.__dict__.clear()
    node.__dict__.update(other.__dict__ | location)


def _is_falsy(value: ast.expr) -> bool:
    """Return whether a value is a constant for which ``None`` is as good in a condition."""
    return isinstance(value, ast.Constant) and not value.value


def _name(before: ast.AST, after: type[ast.AST]) -> str:
    return f"{type(before).__name__} to {after.__name__}"
