"""No import ring, imports under ``TYPE_CHECKING`` and inside functions included."""

import ast
from collections.abc import Iterator, Mapping

from tests.unit.structure import ratchet
from tests.unit.structure.source_tree import Module, code

Graph = Mapping[str, frozenset[str]]


def imported(module: Module, names: frozenset[str]) -> Iterator[str]:
    """Yield the modules of the tree that a module imports, wherever the import stands.

    ``from package import name`` imports ``package.name`` where that is a module, else ``package``.
    """
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in names)
        elif isinstance(node, ast.ImportFrom):
            package = node.module or ""
            if node.level:
                parents = module.name.split(".")
                above = len(parents) - node.level + module.is_package
                package = ".".join((*parents[:above], *filter(None, [node.module])))
            for each in node.names:
                full = f"{package}.{each.name}"
                if full in names:
                    yield full
                elif package in names:
                    yield package


def import_graph(tree: tuple[Module, ...]) -> Graph:
    """Return what each module imports."""
    names = frozenset(module.name for module in tree)
    return {module.name: frozenset(imported(module, names)) - {module.name} for module in tree}


def rings(graph: Graph) -> list[tuple[str, ...]]:
    """Return the strongly connected components of two and more modules, by Tarjan's algorithm without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found = []
    for start in graph:
        if start in index:
            continue
        work = [(start, iter(sorted(graph[start])))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, successors = work[-1]
            following = next(successors, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component: list[str] = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    if len(component) > 1:
                        found.append(tuple(sorted(component)))
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(sorted(graph[following]))))
            elif following in on_stack:
                low[node] = min(low[node], index[following])
    return found


def import_rings() -> dict[str, int]:
    """Return the modules that are part of a ring, each with the size of its ring."""
    return {name: len(ring) for ring in rings(import_graph(code())) for name in ring}


RULES = {"import rings": import_rings}


def test_no_modules_import_each_other() -> None:
    ratchet.check("import rings", import_rings())


def test_a_ring_is_found_whatever_its_length() -> None:
    graph = {
        name: frozenset(following) for name, following in {"a": "b", "b": "c", "c": "a", "d": "a", "e": ""}.items()
    }
    assert rings(graph) == [("a", "b", "c")]
