"""Serializability of transactions that append to lists and read them: the anomalies of Adya, found as Elle does.

A list shows the order of its appends.  So reads give the order of versions of each key, and from it the dependencies:
``ww`` between appends, ``wr`` from an append to its readers, ``rw`` from a reader to the next append.  ``rt`` is the
order of time, ``process`` the order of a session.  A cycle is an anomaly; its edges give its name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.soak.checker.anomaly import Anomaly, Findings
from tests.soak.checker.graph import Edges, add_edge, components, shortest_cycle
from tests.soak.checker.views import WRITERS, Tenures
from tests.soak.history.operation import FINAL, Operation

ORDERS = frozenset({"rt", "process"})
SEARCHES: tuple[tuple[str, frozenset[str], str | None], ...] = (
    ("G0: write cycle", frozenset({"ww"}), None),
    ("G1c: circular information flow", frozenset({"ww", "wr"}), None),
    ("G-single: read skew", frozenset({"ww", "wr"}), "rw"),
    ("G2: anti-dependency cycle", frozenset({"ww", "wr", "rw"}), None),
    ("G0-realtime", frozenset({"ww"}) | ORDERS, None),
    ("G1c-realtime", frozenset({"ww", "wr"}) | ORDERS, None),
    ("G-single-realtime", frozenset({"ww", "wr"}) | ORDERS, "rw"),
    ("G2-realtime", frozenset({"ww", "wr", "rw"}) | ORDERS, None),
)


@dataclass
class _Index:
    """The transactions of one group, by what they appended."""

    transactions: list[Operation]
    appender: dict[tuple[str, str], int] = field(default_factory=dict)
    last_append: dict[tuple[int, str], str] = field(default_factory=dict)
    orders: dict[str, list[str]] = field(default_factory=dict)
    """The longest list of each key that was read."""


def check_lists(group: str, history: Sequence[Operation], tenures: Tenures) -> Findings:
    """Check the transactions on one group of keys.

    Args:
        group: the name of the group.
        history: ``txn`` operations.  Their reads show only what they committed on, or one durable state.
        tenures: which writers were replaced when.
    """
    findings = Findings()
    index = _Index(list(history))
    findings.count("transactions", sum(each.outcome == "ok" for each in history))
    _index_appends(index)
    findings.anomalies += _check_reads(group, index)
    findings.anomalies += _lost_updates(group, index)
    findings.anomalies += _lost_appends(group, index)
    if findings.anomalies:
        return findings  # the order of versions is not known
    edges = _dependencies(index)
    _add_orders(edges, index, tenures)
    for component in components(edges):
        findings.anomalies.append(_name_cycle(group, edges, component, index))
    return findings


def _index_appends(index: _Index) -> None:
    for number, operation in enumerate(index.transactions):
        for step in operation.value or ():
            if step[0] == "append":
                index.appender[step[1], step[2]] = number
                index.last_append[number, step[1]] = step[2]


def _reads(operation: Operation) -> list[tuple[str, list[str]]]:
    if operation.outcome != "ok":
        return []
    return [(step[1], step[2]) for step in operation.value or () if step[0] == "r"]


def _check_reads(group: str, index: _Index) -> list[Anomaly]:
    """Find the order of each list, and reads that fit to no order."""
    found: list[Anomaly] = []
    longest: dict[str, Operation] = {}
    for operation in index.transactions:
        for key, elements in _reads(operation):
            found += _check_elements(group, index, operation, key, elements)
            if len(elements) > len(index.orders.get(key, [])) or key not in longest:
                index.orders[key], longest[key] = elements, operation
    for operation in index.transactions:
        for key, elements in _reads(operation):
            if index.orders[key][: len(elements)] != elements:
                text = f"{operation.name} and {longest[key].name} read {key} in orders that exclude each other"
                found.append(Anomaly.of("incompatible order", group, text, [longest[key], operation]))
    return found


def _check_elements(group: str, index: _Index, reader: Operation, key: str, elements: list[str]) -> list[Anomaly]:
    if len(set(elements)) != len(elements):
        return [Anomaly.of("duplicate elements", group, f"{reader.name} read an element of {key} twice", [reader])]
    for element in elements:
        number = index.appender.get((key, element))
        if number is None:
            text = f"{reader.name} read {element} in {key}, and no transaction appended it"
            return [Anomaly.of("unwritten value", group, text, [reader])]
        writer = index.transactions[number]
        if writer.outcome == "fail":
            text = f"{reader.name} read {element} of {writer.name}, which failed"
            return [Anomaly.of("G1a: aborted read", group, text, [writer, reader])]
    if elements:
        number = index.appender[key, elements[-1]]
        last = index.last_append[number, key]
        if last != elements[-1] and index.transactions[number] is not reader:
            text = f"{reader.name} read {key} between two appends of {index.transactions[number].name}"
            return [Anomaly.of("G1b: intermediate read", group, text, [index.transactions[number], reader])]
    return []


def _lost_updates(group: str, index: _Index) -> list[Anomaly]:
    """Find committed transactions that appended to the same version of a list."""
    found: list[Anomaly] = []
    based: dict[tuple[str, int], Operation] = {}
    for operation in index.transactions:
        if operation.outcome != "ok":
            continue
        appended = {step[1] for step in operation.value or () if step[0] == "append"}
        for key, elements in _reads(operation):
            if key not in appended:
                continue
            other = based.setdefault((key, len(elements)), operation)
            if other is not operation:
                text = f"{other.name} and {operation.name} appended to the same version of {key}"
                found.append(Anomaly.of("lost update", group, text, [other, operation]))
    return found


def _lost_appends(group: str, index: _Index) -> list[Anomaly]:
    """Find acknowledged appends that the read after the end of all transactions does not show."""
    found = []
    finals = [each for each in index.transactions if each.session == FINAL and each.outcome == "ok"]
    for final in finals:
        read = {(key, element) for key, elements in _reads(final) for element in elements}
        keys = {key for key, _ in _reads(final)}
        for (key, element), number in index.appender.items():
            writer = index.transactions[number]
            if writer.outcome == "ok" and key in keys and (key, element) not in read:
                text = f"{writer.name} appended {element} to {key}, which was acknowledged; it is not there at the end"
                found.append(Anomaly.of("lost write", group, text, [writer, final]))
    return found


def _dependencies(index: _Index) -> Edges:
    edges: Edges = {}
    for key, elements in index.orders.items():
        writers = [index.appender[key, element] for element in elements]
        for before, after in pairwise(writers):
            add_edge(edges, before, after, "ww")
    for number, operation in enumerate(index.transactions):
        for key, elements in _reads(operation):
            if elements:
                add_edge(edges, index.appender[key, elements[-1]], number, "wr")
            order = index.orders[key]
            following = order[len(elements) :]
            if following and (after := index.appender[key, following[0]]) != number:
                add_edge(edges, number, after, "rw")
    _add_unread_appends(edges, index)
    return edges


def _add_unread_appends(edges: Edges, index: _Index) -> None:
    """Order the acknowledged appends that were never read after everything that was read."""
    for (key, element), number in index.appender.items():
        if index.transactions[number].outcome != "ok" or element in index.orders.get(key, ()):
            continue
        order = index.orders.get(key, [])
        if order:
            add_edge(edges, index.appender[key, order[-1]], number, "ww")
        for reader, operation in enumerate(index.transactions):
            if reader != number and any(read_key == key for read_key, _ in _reads(operation)):
                add_edge(edges, reader, number, "rw")


def _add_orders(edges: Edges, index: _Index, tenures: Tenures) -> None:
    """Add the order of time among what a writer served, and the order of each session."""
    strict = [
        (operation.start, number)
        for number, operation in enumerate(index.transactions)
        if operation.outcome == "ok" and operation.interface in WRITERS and not _is_stale_read(operation, tenures)
    ]
    frontier: list[int] = []
    by_end = sorted(strict, key=lambda each: index.transactions[each[1]].end)
    finished = 0
    for start, number in sorted(strict):
        while finished < len(by_end) and index.transactions[by_end[finished][1]].end < start:
            done = by_end[finished][1]
            begun = index.transactions[done].start
            frontier = [each for each in frontier if index.transactions[each].end >= begun]
            frontier.append(done)
            finished += 1
        for before in frontier:
            add_edge(edges, before, number, "rt")
    newest: dict[tuple[str, str], int] = {}
    for number, operation in enumerate(index.transactions):
        if operation.outcome == "ok":
            session = (operation.session, operation.served_by)
            if session in newest:
                add_edge(edges, newest[session], number, "process")
            newest[session] = number


def _is_stale_read(operation: Operation, tenures: Tenures) -> bool:
    return tenures.is_stale(operation) and all(step[0] == "r" for step in operation.value)


def _name_cycle(group: str, edges: Edges, component: list[int], index: _Index) -> Anomaly:
    kind, cycle = next(
        (kind, cycle)
        for kind, kinds, once in SEARCHES
        if (cycle := shortest_cycle(edges, component, kinds, once)) is not None
    )
    steps = []
    for before, after in pairwise(cycle):
        found = "/".join(sorted(edges[before][after]))
        steps.append(f"{index.transactions[before].name} -{found}-> {index.transactions[after].name}")
    members = [index.transactions[number] for number in cycle[:-1]]
    return Anomaly.of(kind, group, "; ".join(steps), members)
