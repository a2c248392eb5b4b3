"""Histories of concurrent transactions, checked for cycles of dependencies.

Every value is written once, so what was read tells who wrote it.  Of the committed transactions a graph is built
(Adya): who read a version depends on who wrote it, who overwrote it depends on who read it, and a scan has read every
key of the range that it saw, also those that were not there.  A cycle is an anomaly: lost update, write skew, phantom.
That the check can find them is shown by looser isolation, and by a conflict check with parts taken out.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shale
from shale.engine.write.commit_history import ConflictWindow
from shale.errors import TransactionConflict
from shale.store.memory import MemoryStore
from tests.examples import examples

KEYS = [b"a", b"b", b"c", b"d", b"e"]
ACTIONS = ("get", "get", "scan", "scan", "put", "put", "delete", "merge", "mark", "commit", "commit", "rollback")
STEP = st.tuples(
    st.integers(0, 3), st.sampled_from([*ACTIONS, "put alone", "flush"]), st.integers(0, 4), st.integers(0, 5),
    st.sampled_from([None, None, 1, 2]), st.booleans(),
)  # fmt: skip
Step = tuple[int, str, int, int, int | None, bool]


@dataclass
class Node:
    """A transaction: the versions of keys that it read, by commit number, and its writes."""

    seq: int
    reads: dict[bytes, int] = field(default_factory=dict)
    writes: dict[bytes, bytes | None] = field(default_factory=dict)
    tx: Any = None
    commit: int | None = None


class History:
    """The committed versions of every key, by commit."""

    def __init__(self) -> None:
        self.versions: dict[bytes, list[tuple[int, bytes | None]]] = {key: [(0, None)] for key in KEYS}
        self.committed: list[Node] = []

    def visible(self, key: bytes, seq: int) -> tuple[int, bytes | None]:
        return max(version for version in self.versions[key] if version[0] <= seq)

    def add(self, node: Node, commit: int | None) -> None:
        node.commit = commit
        self.committed.append(node)
        for key, value in node.writes.items():
            assert commit is not None
            assert commit > self.versions[key][-1][0]
            self.versions[key].append((commit, value))

    def cycle(self) -> list[int] | None:
        """Return transactions that depend on each other in a cycle."""
        writers = {node.commit: number for number, node in enumerate(self.committed) if node.writes}
        after: dict[int, set[int]] = {number: set() for number in range(len(self.committed))}
        for key, versions in self.versions.items():
            order = [commit for commit, _ in versions]
            following = dict(pairwise(order))
            for earlier, later in following.items():
                if earlier:
                    after[writers[later]].add(writers[earlier])
            for number, node in enumerate(self.committed):
                if key not in node.reads:
                    continue
                seen = node.reads[key]
                if seen and writers[seen] != number:
                    after[number].add(writers[seen])
                if seen in following and writers[following[seen]] != number:
                    after[writers[following[seen]]].add(number)
        try:
            TopologicalSorter(after).prepare()
        except CycleError as error:
            return list(error.args[1])
        return None


class Play:
    """Executes steps of several transactions in turn, and checks every read against the state at its start."""

    def __init__(self, db: shale.Db, isolation: str) -> None:
        self.db = db
        self.isolation = isolation
        self.history = History()
        self.nodes: dict[int, Node] = {}
        self.count = 0

    async def take(self, step: Step) -> None:
        actor, action, first, second, limit, reverse = step
        if action == "flush":
            await self.db.flush("memtable")
            return
        if action == "put alone":
            alone = Node(0, writes={KEYS[first]: self.fresh()})
            self.history.add(alone, (await self.db.put(KEYS[first], alone.writes[KEYS[first]])).seq)
            return
        if actor not in self.nodes:
            tx = await self.db.transaction(self.isolation)
            self.nodes[actor] = Node(tx.seq, tx=tx)
        node = self.nodes[actor]
        key = KEYS[first]
        if action == "get":
            assert await node.tx.get(key) == self.expected(node, key)
            self.note(node, key)
        elif action == "scan":
            await self.scan(node, key, KEYS[second] if second < len(KEYS) else b"z", limit, reverse)
        elif action == "put":
            node.writes[key] = self.fresh()
            node.tx.put(key, node.writes[key])
        elif action == "delete":
            node.writes[key] = None
            node.tx.delete(key)
        elif action == "merge":
            await self.merge(node, key)
        elif action == "mark":
            node.tx.mark_read([key])
            self.note(node, key)
        else:
            del self.nodes[actor]
            await self.end(node, action)

    async def merge(self, node: Node, key: bytes) -> None:
        """Write an operand; the transaction must read the base first, so that its write is determined."""
        before = await node.tx.get(key)
        self.note(node, key)
        operand = self.fresh()
        node.tx.merge(key, operand)
        node.writes[key] = (before or b"") + operand

    async def scan(self, node: Node, start: bytes, stop: bytes, limit: int | None, reverse: bool) -> None:
        found = [row async for row in node.tx.scan(start=start, stop=stop, limit=limit, reverse=reverse)]
        in_range = sorted((key for key in KEYS if start <= key < stop), reverse=reverse)
        expected = [(key, value) for key in in_range if (value := self.expected(node, key)) is not None]
        assert [(row.key, row.value) for row in found] == expected[:limit]
        for key in in_range:
            self.note(node, key)
            if limit is not None and len(found) == limit and key == found[-1].key:
                break

    async def end(self, node: Node, how: str) -> None:
        if how == "rollback":
            await node.tx.rollback()
            return
        try:
            handle = await node.tx.commit()
        except TransactionConflict:
            return
        self.history.add(node, None if handle is None else handle.seq)

    def expected(self, node: Node, key: bytes) -> bytes | None:
        return node.writes[key] if key in node.writes else self.history.visible(key, node.seq)[1]

    def note(self, node: Node, key: bytes) -> None:
        if key not in node.writes:
            node.reads[key] = self.history.visible(key, node.seq)[0]

    def fresh(self) -> bytes:
        self.count += 1
        return b"%d," % self.count


async def play(steps: Iterable[Step], isolation: str) -> list[int] | None:
    """Return a dependency cycle of the resulting history; fail if the rows do not follow from it."""
    options: dict[str, Any] = {
        "flush_interval": None,
        "merge_operator": "concatenate",
        "l0_max_ssts": 99,
        "l0_max_ssts_per_key": 99,
    }
    async with shale.Db.open("db", store=MemoryStore(), **options) as db:
        played = Play(db, isolation)
        for step in steps:
            await played.take(step)
        for actor in list(played.nodes):
            await played.end(played.nodes.pop(actor), "commit")
        rows = {row.key: row.value async for row in db.scan()}
        last = {key: played.history.visible(key, 1 << 62)[1] for key in KEYS}
        assert db.status.open_snapshots == 0
        assert db.status.transaction_history_bytes == 0
        return played.history.cycle() if rows == {key: last[key] for key in last if last[key] is not None} else []


def some_steps(seed: int) -> list[Step]:
    rng = random.Random(seed)
    actions = [*ACTIONS, "put alone", "flush"]
    return [
        (rng.randrange(3), rng.choice(actions), rng.randrange(5), rng.randrange(6), rng.choice([None, 1, 2]),
         rng.random() < 0.5) for _ in range(25)
    ]  # fmt: skip


@settings(max_examples=examples(50), deadline=None)
@given(steps=st.lists(STEP, max_size=40))
def test_serializable_transactions_have_no_cycle(steps: list[Step]) -> None:
    assert anyio.run(play, steps, "serializable") is None


@pytest.mark.parametrize("seed", range(40))
def test_serializable_transactions_of_many_seeds_have_no_cycle(seed: int) -> None:
    assert anyio.run(play, some_steps(seed), "serializable") is None


def anomalies(isolation: str, seeds: int = 60) -> int:
    async def count() -> int:
        return sum([await play(some_steps(seed), isolation) is not None for seed in range(seeds)])

    return anyio.run(count)


@pytest.mark.slow
def test_snapshot_isolation_allows_write_skew_and_the_check_finds_it() -> None:
    assert anomalies("snapshot") > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "nothing"),
    [
        pytest.param("wrote_in", lambda _since, _ranges: False, id="without ranges: phantoms"),
        pytest.param("wrote_any", lambda _since, _keys: False, id="without keys: lost updates"),
    ],
)
def test_a_check_with_a_part_taken_out_is_found_out(
    monkeypatch: pytest.MonkeyPatch, part: str, nothing: Callable[..., bool]
) -> None:
    monkeypatch.setattr(ConflictWindow, part, nothing)
    assert anomalies("serializable") > 0
