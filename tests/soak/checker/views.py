"""Which reads must be linearizable, and with which others.

Durable reads of the writer are: they show what no crash can undo.  Dirty reads of the writer are, too, but they are
ahead of durable ones, so each kind is judged alone.  Not linearizable are

- reads of ``DbReader`` and of commands, which may be old, but never go back within a session;
- reads of a writer that has been replaced, until it notices.  The next writer has replaced it at the latest when it
  answers its first request;
- dirty reads of rows that a crash undid: their writes were never acknowledged.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.soak.history.operation import NEVER, Operation

WRITERS = frozenset({"http", "resp", "wheel"})
"""Interfaces that are served by a writer."""


@dataclass(frozen=True)
class Tenures:
    """For each process that served as the writer, when the next one answered its first request."""

    replaced_at: dict[str, float]

    @classmethod
    def of(cls, history: Iterable[Operation]) -> "Tenures":
        """Find the order of the writers: each begins with its first successful operation."""
        first: dict[str, float] = {}
        for operation in history:
            if operation.outcome == "ok" and operation.interface in WRITERS:
                first[operation.served_by] = min(first.get(operation.served_by, NEVER), operation.start)
        order = sorted(first, key=lambda name: first[name])
        nexts = [first[name] for name in order[1:]]
        return cls(dict(zip(order, [*nexts, NEVER], strict=True)))

    def is_stale(self, operation: Operation) -> bool:
        """Say whether the writer that answered may have been replaced before."""
        return operation.end >= self.replaced_at.get(operation.served_by, NEVER)


@dataclass(frozen=True)
class Views:
    """The operations on one key, by what is promised for them."""

    durable: list[Operation]
    """Writes and durable reads."""
    dirty: list[Operation]
    """Writes and dirty reads."""
    monotonic: list[Operation]
    """Reads that may be old."""


def views_of(history: Sequence[Operation], tenures: Tenures) -> Views:
    """Sort the operations on one key."""
    acknowledged = {each.new_value for each in history if each.function != "read" and each.outcome == "ok"}
    durable, dirty, monotonic = [], [], []
    for operation in history:
        if operation.function != "read":
            durable.append(operation)
            dirty.append(operation)
        elif operation.outcome != "ok":
            continue
        elif operation.interface not in WRITERS or tenures.is_stale(operation):
            monotonic.append(operation)
        elif not operation.is_dirty:
            durable.append(operation)
        elif operation.value is None or operation.value in acknowledged:
            dirty.append(operation)
    return Views(durable, dirty, monotonic)
