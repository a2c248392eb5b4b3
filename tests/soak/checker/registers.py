"""Linearizability of a register, by just-in-time linearization.

Wing and Gong's search with Lowe's improvements: calls and returns are replayed in the order of time; a configuration
is a value and the set of calls that took effect and have not returned.  Equal configurations are one.  Values are
written once, so an unknown write that was never read constrains nothing and is left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tests.soak.checker.anomaly import Anomaly, Findings
from tests.soak.history.operation import NEVER, Operation

CONFIGURATIONS_MAX = 20_000
CONTEXT = 6

Configuration = tuple[object, frozenset[int]]


def check_register(key: str, history: Sequence[Operation], *, limit: int = CONFIGURATIONS_MAX) -> Findings:
    """Search an order of all operations on one key that explains all reads.

    Args:
        key: the name of the register, for the findings.
        history: ``read``, ``write`` and ``cas`` operations of this key, all of which must be linearizable.
        limit: the number of configurations after which the key is undecided.
    """
    findings = Findings()
    relevant = _relevant(history)
    if (ghost := _first_unwritten(key, history, relevant)) is not None:
        findings.anomalies.append(ghost)
        return findings
    findings.count("register operations", len(relevant))
    events = sorted(
        [(operation.start, 0, index) for index, operation in enumerate(relevant)]
        + [(operation.end, 1, index) for index, operation in enumerate(relevant) if operation.end != NEVER]
    )
    configurations: set[Configuration] = {(None, frozenset())}
    pending: list[int] = []
    for _, is_return, index in events:
        if not is_return:
            pending.append(index)
            continue
        following = _linearize(configurations, index, pending, relevant, limit)
        if following is None:
            findings.undecided.append(key)
            return findings
        pending.remove(index)
        if not following:
            findings.anomalies.append(_not_linearizable(key, relevant, index, configurations))
            return findings
        configurations = following
    return findings


def _relevant(history: Sequence[Operation]) -> list[Operation]:
    """Return the operations that constrain the order; unknown writes end when their value is first read."""
    seen: dict[object, float] = {}
    for operation in history:
        if operation.outcome != "ok":
            continue
        for value in _observed(operation):
            seen[value] = min(seen.get(value, NEVER), operation.end)
    deletes_matter = None in seen
    found = []
    for operation in history:
        if operation.outcome == "ok":
            found.append(operation)
        elif operation.outcome == "unknown" and operation.function != "read":
            new = operation.new_value
            if new is None:
                if deletes_matter:
                    found.append(replace(operation, end=NEVER))
            elif new in seen:
                found.append(replace(operation, end=max(operation.start, seen[new])))
    return found


def _observed(operation: Operation) -> Iterable[object]:
    if operation.function == "read":
        return (operation.value,)
    return (operation.value[0],) if operation.function == "cas" else ()


def _first_unwritten(key: str, history: Sequence[Operation], relevant: Sequence[Operation]) -> Anomaly | None:
    """Find a value that was read although no write, or only a write without effect, has it."""
    writes = {each.new_value: each for each in history if each.function != "read"}
    for operation in relevant:
        for value in _observed(operation):
            if value is None:
                continue
            writer = writes.get(value)
            if writer is None:
                return Anomaly.of("unwritten value", key, f"{value} was read, and no client wrote it", [operation])
            if writer.outcome == "fail":
                return Anomaly.of("failed write visible", key, f"{value} was rejected and read", [writer, operation])
    return None


def _step(operation: Operation, value: object) -> tuple[bool, object]:
    """Return whether an operation is possible, and the value after it."""
    if operation.function == "write":
        return True, operation.value
    if operation.function == "read":
        return operation.value == value, value
    expected, new = operation.value
    return expected == value, new


def _linearize(
    configurations: set[Configuration], index: int, pending: list[int], history: Sequence[Operation], limit: int
) -> set[Configuration] | None:
    """Let ``index`` take effect in every configuration, after any of the other pending operations."""
    done: set[Configuration] = set()
    seen = set(configurations)
    stack = list(configurations)
    while stack:
        value, effective = stack.pop()
        if index in effective:
            done.add((value, effective - {index}))
            continue
        for each in pending:
            if each in effective:
                continue
            is_possible, after = _step(history[each], value)
            if not is_possible:
                continue
            following = (after, effective | {each})
            if following not in seen:
                seen.add(following)
                stack.append(following)
                if len(seen) > limit:
                    return None
    return done


def _not_linearizable(key: str, history: Sequence[Operation], index: int, before: set[Configuration]) -> Anomaly:
    operation = history[index]
    possible = sorted({str(value) for value, _ in before})[:CONTEXT]
    last_writes = [each for each in history if each.function != "read" and each.start < operation.end][-CONTEXT:]
    readers = [each for each in history if each.function == "read" and each.end <= operation.end][-CONTEXT:]
    did = f"{operation.function} of {operation.value}"
    text = f"no order explains {operation.name}, a {did}: before it the value could only be {', '.join(possible)}"
    context = sorted(
        {operation.name: operation, **{each.name: each for each in [*last_writes, *readers]}}.values(), key=_start
    )
    return Anomaly.of("not linearizable", key, text, context)


def _start(operation: Operation) -> float:
    return operation.start
