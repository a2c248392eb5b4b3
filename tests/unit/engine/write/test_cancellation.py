"""Callers that are cancelled at every point at which they can wait: a commit is atomic.

SlateDB's issue 1733: a caller that gave up left the writer believing in a commit that was only half done.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator
from itertools import count
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shale
from shale.env import Clock, Env, InlineCpu
from shale.store.memory import MemoryStore
from tests.examples import examples

SMALL = {
    "flush_interval": None, "merge_operator": "concatenate", "l0_max_ssts": 1000, "l0_max_ssts_per_key": 1000,
    "l0_sst_size_bytes": 200, "max_unflushed_bytes": 600,
}  # fmt: skip
KEYS = (b"a", b"b", b"c")


class JumpyClock(Clock):
    """A clock that advances at every read, which disables the fast path of writes, and sometimes goes back a little."""

    def __init__(self) -> None:
        self.ms = 1_000_000
        self.looks = 0

    def now_ms(self) -> int:
        self.looks += 1
        self.ms += 3
        return self.ms - (4 if self.looks % 5 == 0 else 0)

    def monotonic_s(self) -> float:
        self.ms += 3
        return self.ms / 1000


class CancelledAt:
    """Awaits a call and cancels it at its n-th wait."""

    def __init__(self, call: Coroutine[Any, Any, Any], number: int) -> None:
        self._call = call
        self._number = number
        self.was_cancelled = False

    def __await__(self) -> Generator[Any, Any, Any]:
        for number in count():
            try:
                waits_for = self._call.send(None)
            except StopIteration as end:
                return end.value
            if number < self._number:
                yield waits_for
                continue
            self.was_cancelled = True
            if waits_for is not None:
                waits_for._asyncio_future_blocking = False
                waits_for.cancel()
            with pytest.raises(asyncio.CancelledError):
                self._call.throw(asyncio.CancelledError())
            return None
        raise AssertionError


class ExpectedRows:
    """The expected rows: ``rows`` is the result of the commits in order."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.count = 0

    def value(self) -> bytes:
        self.count += 1
        return b"%d," % self.count * 5


async def contents(db: shale.Db) -> dict[bytes, bytes]:
    return {row.key: row.value async for row in db.scan()}


async def put(db: shale.Db, expected: ExpectedRows, number: int) -> bool:
    value = expected.value()
    call = CancelledAt(db.put(b"a", value), number)
    if await call is not None:
        expected.rows[b"a"] = value
    return call.was_cancelled


async def merge(db: shale.Db, expected: ExpectedRows, number: int) -> bool:
    value = expected.value()
    call = CancelledAt(db.merge(b"b", value), number)
    if await call is not None:
        expected.rows[b"b"] = expected.rows.get(b"b", b"") + value
    return call.was_cancelled


async def delete(db: shale.Db, expected: ExpectedRows, number: int) -> bool:
    call = CancelledAt(db.delete(b"a"), number)
    if await call is not None:
        expected.rows.pop(b"a", None)
    return call.was_cancelled


async def write(db: shale.Db, expected: ExpectedRows, number: int) -> bool:
    batch, value = shale.WriteBatch(), expected.value()
    for key in KEYS:
        batch.put(key, value)
    call = CancelledAt(db.write(batch), number)
    if await call is not None:
        expected.rows.update(dict.fromkeys(KEYS, value))
    return call.was_cancelled


async def commit(db: shale.Db, expected: ExpectedRows, number: int) -> bool:
    transaction, value = await db.transaction("serializable"), expected.value()
    assert await transaction.get_many(KEYS) == [expected.rows.get(key) for key in KEYS]
    for key in KEYS:
        transaction.put(key, value)
    call = CancelledAt(transaction.commit(durable=True), number)
    handle = await call
    assert transaction.is_over
    # A commit that is cancelled while it waits to be durable has happened.
    if handle is not None or await db.get(KEYS[0]) == value:
        expected.rows.update(dict.fromkeys(KEYS, value))
    return call.was_cancelled


async def durable(db: shale.Db, expected: ExpectedRows, number: int) -> bool:
    value = expected.value()
    handle = await db.put(b"a", value)
    expected.rows[b"a"] = value
    call = CancelledAt(handle.durable(), number)
    await call
    return call.was_cancelled


async def flush_wal(db: shale.Db, _books: ExpectedRows, number: int) -> bool:
    call = CancelledAt(db.flush("wal"), number)
    await call
    return call.was_cancelled


async def flush_memtable(db: shale.Db, _books: ExpectedRows, number: int) -> bool:
    call = CancelledAt(db.flush("memtable"), number)
    await call
    return call.was_cancelled


async def checkpoint(db: shale.Db, _books: ExpectedRows, number: int) -> bool:
    call = CancelledAt(db.checkpoint(), number)
    await call
    return call.was_cancelled


Step = Callable[[shale.Db, ExpectedRows, int], Awaitable[bool]]
STEPS: list[Step] = [put, merge, delete, write, commit, durable, flush_wal, flush_memtable, checkpoint]


async def scenario(store: MemoryStore, steps: list[tuple[Step, int]], interval: float | None) -> list[bool]:
    """Run the steps on one database, then check it, flush it, and check it again after reopening."""
    env, expected = Env(JumpyClock(), random.Random(1), InlineCpu()), ExpectedRows()
    db = await shale.Db.open("db", store=store, env=env, **{**SMALL, "flush_interval": interval})
    cancelled = []
    for step, number in steps:
        with anyio.fail_after(60):
            cancelled.append(await step(db, expected, number))
        assert await contents(db) == expected.rows
    await db.flush("wal")
    assert db.status.durable_seq >= db.status.last_seq
    assert db.status.open_snapshots == 0
    db = await shale.Db.open("db", store=store, env=env, **SMALL)  # the other one was never closed
    assert await contents(db) == expected.rows
    await db.put(b"new", b"")
    await db.close()
    return cancelled


@pytest.mark.parametrize("step", STEPS)
def test_cancelled_at_every_point(step: Step) -> None:
    """Cancel at one point after another, until a call ends before it waits that often."""

    async def every_point() -> int:
        for number in count():
            steps = [(write, 99), (step, number), (write, 99), (flush_memtable, 99), (step, number), (put, 99)]
            cancelled = await scenario(MemoryStore(), steps, 0)
            if not (cancelled[1] or cancelled[4]):
                return number
        raise AssertionError

    assert anyio.run(every_point) >= 1, "it never waits, so nothing was tried"


@settings(max_examples=examples(15), deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 4)), max_size=12))
@pytest.mark.parametrize("interval", [0, 0.01])
def test_many_are_cancelled(interval: float, steps: list[tuple[Step, int]]) -> None:
    anyio.run(scenario, MemoryStore(), steps, interval)
