"""Checks whether a history of transactions is serializable.

Given are committed transactions with the values that they read and wrote, every value written only once.  From these,
and the order of the commits, follow the dependencies:

- *write*: a key was written by one and then by another;
- *read*: one read what the other had written;
- *overtaken*: one read a version, or the absence of one, which the other replaced.  A range that was read counts for
  every key in it, so a row that another transaction has added is detected (a phantom).

A cycle of dependencies means that there is no serial order.  Source: Adya, "Weak Consistency: A Generalized Theory and
Optimistic Implementations for Distributed Transactions" (1999), 4.4; the names of the anomalies are from there too.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import NamedTuple

from shale.core.lazy_dataclass import dataclass

_Key = bytes
_Value = bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRead:
    """Rows shown by a scan of the keys from ``start`` on, below ``stop``; ``None`` is without end."""

    start: _Key | None = None
    stop: _Key | None = None
    rows: Mapping[_Key, _Value] = field(default_factory=dict)

    def contains(self, key: _Key) -> bool:
        """Whether a key is in the range."""
        return (self.start is None or key >= self.start) and (self.stop is None or key < self.stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A transaction that was committed.

    Attributes:
        name: for messages.
        seq: its place among the commits; ``None`` if it wrote nothing.
        reads: what it read of others, ``None`` where there was nothing.
        ranges: what its scans showed of others.
        writes: what it wrote last, ``None`` for a deletion.
        overwritten: values that it wrote and replaced itself, which no other transaction may read.
        began: the newest commit that it could see, if that is known: values do not tell which of
            several deletions of a key was read.
    """

    name: str
    seq: int | None = None
    began: int | None = None
    reads: Mapping[_Key, _Value | None] = field(default_factory=dict)
    ranges: Sequence[RangeRead] = ()
    writes: Mapping[_Key, _Value | None] = field(default_factory=dict)
    overwritten: frozenset[_Value] = frozenset()


class Dependency(NamedTuple):
    """``before`` has to come before ``after``, because of ``kind`` at ``key``."""

    before: str
    after: str
    kind: str
    key: _Key

    def __str__(self) -> str:
        return f"{self.before} -> {self.after} ({self.kind} {self.key!r})"


class NotSerializable(AssertionError):
    """The history has no serial order."""


def check_serializable(history: Iterable[Committed], *, aborted: Iterable[_Value] = ()) -> None:
    """Assert that there is a serial order in which each transaction would have read what it read.

    Args:
        history: all committed transactions, in any order.
        aborted: values that were written by transactions which did not commit.

    Raises:
        NotSerializable: a transaction read a value that was never committed, or there is a cycle.
    """
    transactions = sorted(history, key=lambda each: (each.seq is None, each.seq or 0))
    versions = _Versions(transactions, frozenset(aborted))
    after: dict[str, list[Dependency]] = {each.name: [] for each in transactions}
    assert len(after) == len(transactions), "names must differ"
    for dependency in versions.dependencies():
        if dependency.before != dependency.after:
            after[dependency.before].append(dependency)
    cycle = _find_cycle(after)
    if cycle:
        raise NotSerializable("these dependencies form a cycle:\n" + "\n".join(map(str, cycle)))


class _Versions:
    """The writes by key, in the order of the commits."""

    def __init__(self, transactions: Sequence[Committed], aborted: frozenset[_Value]) -> None:
        self._transactions = transactions
        self._aborted = aborted
        self._of_key: dict[_Key, list[Committed]] = {}
        self._writers: dict[tuple[_Key, _Value], Committed] = {}
        self._overwritten = {value: each.name for each in transactions for value in each.overwritten}
        for each in transactions:
            assert (each.seq is None) == (not each.writes), f"{each.name}: a transaction has a seq exactly if it writes"
            for key, value in each.writes.items():
                self._of_key.setdefault(key, []).append(each)
                if value is not None:
                    assert (key, value) not in self._writers, f"{value!r} was written to {key!r} twice"
                    self._writers[key, value] = each

    def dependencies(self) -> Iterator[Dependency]:
        """Yield all dependencies; a transaction may depend on itself."""
        for key, writers in self._of_key.items():
            for first, second in pairwise(writers):
                yield Dependency(first.name, second.name, "write", key)
        for reader in self._transactions:
            for key, value in reader.reads.items():
                yield from self._read(reader, key, value)
            for scanned in reader.ranges:
                for key in scanned.rows:
                    if not scanned.contains(key):
                        raise NotSerializable(f"{reader.name} was shown {key!r}, which is outside of its range")
                for key in sorted({*scanned.rows, *filter(scanned.contains, self._of_key)}):
                    yield from self._read(reader, key, scanned.rows.get(key))

    def _read(self, reader: Committed, key: _Key, value: _Value | None) -> Iterator[Dependency]:
        writers = self._of_key.get(key, [])
        if value is None:
            yield from self._read_nothing(reader, key, writers)
            return
        writer = self._writers.get((key, value))
        if writer is None:
            self._refuse(reader, key, value)
            return
        yield Dependency(writer.name, reader.name, "read", key)
        place = writers.index(writer) + 1
        # Of the versions that came later the next one is enough: writers of one key depend on each other already.
        if place < len(writers):
            yield Dependency(reader.name, writers[place].name, "overtaken", key)

    def _read_nothing(self, reader: Committed, key: _Key, writers: Sequence[Committed]) -> Iterator[Dependency]:
        """Yield the dependencies of a read without a row: before any write, or after the last visible deletion."""
        seqs = [each.seq or 0 for each in writers]
        at = len(writers)
        if reader.began is not None:
            at = bisect_right(seqs, reader.began)
        elif reader.seq is not None:
            at = bisect_right(seqs, reader.seq - 1)
        candidates = [place for place in range(at) if writers[place].writes[key] is None]
        if candidates:
            place = candidates[-1]
            yield Dependency(writers[place].name, reader.name, "read", key)
        else:
            place = -1
        if place + 1 < len(writers):
            yield Dependency(reader.name, writers[place + 1].name, "overtaken", key)

    def _refuse(self, reader: Committed, key: _Key, value: _Value) -> None:
        if value in self._aborted:
            raise NotSerializable(f"{reader.name} read {value!r} of {key!r}, which was never committed (G1a)")
        if value in self._overwritten:
            writer = self._overwritten[value]
            raise NotSerializable(f"{reader.name} read {value!r} of {key!r}, which {writer} replaced itself (G1b)")
        raise NotSerializable(f"{reader.name} read {value!r} of {key!r}, which was never written")


def _find_cycle(after: Mapping[str, Sequence[Dependency]]) -> list[Dependency]:
    """Return dependencies that form a cycle; empty if there is none."""
    done: set[str] = set()
    for start in after:
        path: list[Dependency] = []
        on_path = {start}
        waiting = [iter(after[start])] if start not in done else []
        at = [start]
        while waiting:
            step = next(waiting[-1], None)
            if step is None:
                waiting.pop()
                left = at.pop()
                on_path.discard(left)
                done.add(left)
                if path:
                    path.pop()
            elif step.after in on_path:
                names = [each.before for each in path] + [step.before]
                return [*path, step][names.index(step.after) :]
            elif step.after not in done:
                path.append(step)
                at.append(step.after)
                on_path.add(step.after)
                waiting.append(iter(after[step.after]))
    return []
