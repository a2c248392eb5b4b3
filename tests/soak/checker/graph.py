"""Cycles in a graph whose edges have kinds, found without recursion."""

from collections import deque
from collections.abc import Iterable, Iterator

Edges = dict[int, dict[int, set[str]]]
"""For each node its successors, each with the kinds of the edges to it."""


def add_edge(edges: Edges, source: int, target: int, kind: str) -> None:
    """Add an edge unless it is a loop."""
    if source != target:
        edges.setdefault(source, {}).setdefault(target, set()).add(kind)


def components(edges: Edges) -> Iterator[list[int]]:
    """Yield the strongly connected components with more than one node (Tarjan)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    for root in list(edges):
        if root in number:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(edges.get(root, ())))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            for following in successors:
                if following not in number:
                    number[following] = low[following] = len(number)
                    stack.append(following)
                    on_stack.add(following)
                    work.append((following, iter(edges.get(following, ()))))
                    break
                if following in on_stack:
                    low[node] = min(low[node], number[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1:
                        yield component


def shortest_cycle(
    edges: Edges, nodes: Iterable[int], kinds: frozenset[str], once: str | None = None
) -> list[int] | None:
    """Return a shortest cycle with edges of these kinds.

    Args:
        edges: the graph.
        nodes: the nodes that the cycle may use.
        kinds: the kinds of the edges that it may use.
        once: a kind of which it must have exactly one edge more.
    """
    allowed = set(nodes)
    best: list[int] | None = None
    for start in sorted(allowed):
        firsts = [start]
        if once is not None:
            firsts = [each for each, found in edges.get(start, {}).items() if each in allowed and once in found]
        for first in firsts:
            path = _path(edges, allowed, kinds, first, start)
            if path is None:
                continue
            cycle = path if once is None else [start, *path]
            if best is None or len(cycle) < len(best):
                best = cycle
        if best is not None and len(best) <= 3:
            break
    return best


def _path(edges: Edges, allowed: set[int], kinds: frozenset[str], source: int, target: int) -> list[int] | None:
    """Return a shortest path of at least one edge, or of none if source and target differ only by ``once``."""
    before: dict[int, int] = {}
    queue = deque([source])
    while queue:
        node = queue.popleft()
        for following, found in edges.get(node, {}).items():
            if following not in allowed or not found & kinds:
                continue
            if following == target:
                path = [target, node]
                while node != source:
                    node = before[node]
                    path.append(node)
                return path[::-1]
            if following not in before and following != source:
                before[following] = node
                queue.append(following)
    return None
