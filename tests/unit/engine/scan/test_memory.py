"""Idle scans while many times the memory budget is written: the memtables they keep, and the rows they return."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from random import Random
from typing import Any
from weakref import ref

import anyio
import numpy as np
import pytest

import shale
from shale.engine.scan.scan import Scan
from shale.env import Env, InlineCpu, SystemClock
from shale.format.sst.filter_policy import FixedPrefix
from shale.store.memory import MemoryStore
from tests.plain_kernels import without_kernels

BUDGET = 60_000
L0_SIZE = 20_000
KEYS = [b"%c-%03d" % (first, number) for first in b"abc" for number in range(30)]
SETTINGS: dict[str, Any] = {
    "max_unflushed_bytes": BUDGET,
    "l0_sst_size_bytes": L0_SIZE,
    "l0_max_ssts": 1000,
    "l0_max_ssts_per_key": 1000,
    "block_cache_bytes": 0,
    "flush_interval": None,
    "merge_operator": "concatenate",
}
State = dict[bytes, bytes]


class Buffers:
    """The columns of memtables that are still in memory, regardless of their holder."""

    def __init__(self) -> None:
        self._known: dict[int, ref[np.ndarray[Any, Any]]] = {}

    def look(self, db: shale.Db) -> int:
        """Note the memtables of now; the bytes of all that are left."""
        buffers = db._pipeline.buffers
        for table in (buffers.active, *(frozen.table for frozen in buffers.frozen.tables)):
            for part in table.sorted_parts():
                column = part.rows.val_bytes
                root = column if column.base is None or not isinstance(column.base, np.ndarray) else column.base
                self._known[id(root)] = ref(root)
        return sum(column.nbytes for each in self._known.values() if (column := each()) is not None)


class Story:
    """A database under writes, with its contents in a dict."""

    def __init__(self, db: shale.Db, seed: int) -> None:
        self.db = db
        self.rng = Random(seed)
        self.state: State = {}
        self.written = 0

    async def write(self, size: int) -> None:
        """Write rows of so many bytes, and bring them to L0."""
        end = self.written + size
        while self.written < end:
            key, value = self.rng.choice(KEYS), self.rng.randbytes(self.rng.randrange(200, 600))
            draw = self.rng.random()
            if draw < 0.1:
                await self.db.delete(key)
                self.state.pop(key, None)
            elif draw < 0.3:
                await self.db.merge(key, value[:50])
                self.state[key] = self.state.get(key, b"") + value[:50]
            else:
                await self.db.put(key, value)
                self.state[key] = value
            self.written += len(value)

    async def begin(self, scan: Scan, state: State, *, reverse: bool) -> AsyncIterator[None]:
        """Take some rows of a scan; when asked again, the rest, which must be what the state says."""
        expected = sorted(state.items(), reverse=reverse)
        rows = await scan.next_batch(self.rng.choice((1, 5, 40)))
        yield
        rows += await scan.next_batch(self.rng.choice((1, 5, 40)))
        if self.rng.random() < 0.3 and len(rows) < len(expected):
            sought = self.rng.choice(expected[len(rows) :])[0]
            await scan.seek(sought)
            place = [key for key, _ in expected].index(sought)
            expected = expected[: len(rows)] + expected[place:]
        rows += await scan.next_batch(10_000)
        assert [(row.key, row.value) for row in rows] == expected


async def many_scans(story: Story, scopes: AsyncExitStack, *, reverse: bool) -> None:
    db, rng = story.db, story.rng
    buffers, begun = Buffers(), []
    await story.write(BUDGET)
    transaction = await scopes.enter_async_context(db.transaction())
    own = {**story.state, b"a-000": b"own", b"b-0": b"new"}
    transaction.put(b"a-000", b"own")
    transaction.put(b"b-0", b"new")
    largest = 0
    while story.written < 12 * BUDGET:
        kind = rng.choice(("plain", "plain", "transaction", "snapshot", "late"))
        if kind == "transaction":
            scan, state = transaction.scan(reverse=reverse), own
        elif kind == "snapshot":
            scan, state = (await scopes.enter_async_context(db.snapshot())).scan(reverse=reverse), dict(story.state)
        else:
            scan, state = db.scan(reverse=reverse), dict(story.state)
        steps = story.begin(scan, state, reverse=reverse)
        if kind != "late":
            await anext(steps)
        begun.append(steps)
        await story.write(BUDGET)
        largest = max(largest, buffers.look(db))
    assert largest < 1.5 * BUDGET, "flushed memtables stay in memory"
    rng.shuffle(begun)
    for steps in begun:
        async for _ in steps:
            pass
    del begun
    transaction.delete(b"a-000")
    await transaction.rollback()
    assert buffers.look(db) < 2 * BUDGET


@pytest.mark.parametrize(
    ("kernels", "reverse", "segments", "wal_enabled"),
    [
        pytest.param(False, False, False, True, id="plain"),
        pytest.param(True, False, True, False, id="kernels, segments, no WAL"),
        pytest.param(False, True, True, True, id="reverse, segments"),
        pytest.param(True, True, False, False, id="reverse, kernels, no WAL"),
    ],
)
def test_scans_that_rest_keep_no_more_than_the_budget_in_memory(
    kernels: bool, reverse: bool, segments: bool, wal_enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernels:
        without_kernels(monkeypatch)

    async def run() -> None:
        settings = {**SETTINGS, "wal_enabled": wal_enabled}
        if segments:
            settings["segment_extractor"] = FixedPrefix("two", 2)
        env = Env(SystemClock(), Random(1), InlineCpu())
        opened = shale.Db.open("db", store=MemoryStore(env.clock), env=env, **settings)
        async with opened as db, AsyncExitStack() as scopes:
            await many_scans(Story(db, 5), scopes, reverse=reverse)

    anyio.run(run)
