"""Bursts of puts within a millisecond, whose rows are prepared in advance, among other operations."""

import random
from typing import Any

import anyio
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shale
from shale.engine.memtable.row_log import RowLog
from shale.env import Env, InlineCpu
from shale.errors import InvalidClockTick, InvalidRequestError, InvalidSequenceNumber, MergeOperatorMissing
from shale.store.memory import MemoryStore
from shale.types import FLAG_CREATE_TS, FLAG_TOMBSTONE, Entry
from tests.clocks import ManualClock
from tests.examples import examples


class CheckedDb:
    """A database and its expected rows: by key the value, seq, commit time and expiry."""

    def __init__(self, db: shale.Db, clock: ManualClock, ttl_ms: int | None) -> None:
        self.db = db
        self.clock = clock
        self.rows: dict[bytes, tuple[bytes, int, int, int | None]] = {}
        self.seq = self.count = 0
        self._ttl_ms = ttl_ms

    def _next(self) -> tuple[bytes, bytes]:
        self.count += 1
        return b"k%d" % (self.count % 97), b"v%d" % self.count

    def _committed(self, handle: shale.WriteHandle, rows: dict[bytes, bytes], ttl_ms: int | None) -> None:
        assert handle.seq > self.seq
        assert (handle.seq, handle.create_ts) == (self.seq + 1, self.clock.ms)
        self.seq = handle.seq
        expire_ts = None if ttl_ms is None else self.clock.ms + ttl_ms
        self.rows.update({key: (value, self.seq, self.clock.ms, expire_ts) for key, value in rows.items()})

    async def puts(self, count: int) -> None:
        for _ in range(count):
            key, value = self._next()
            self._committed(await self.db.put(key, value), {key: value}, self._ttl_ms)
            assert await self.db.get(key) == value

    async def living(self) -> None:
        key, value = self._next()
        self._committed(await self.db.put(key, value, ttl="70s"), {key: value}, 70_000)

    async def unusual(self) -> None:
        """Write with arguments that are not plain bytes, and with invalid ones, which use no number."""
        for key, value in ((b"", b""), (b"k" * 70_000, b""), ("k", b""), (b"k", 5)):
            with pytest.raises(InvalidRequestError):
                await self.db.put(key, value)  # type: ignore[arg-type]
        key, value = self._next()
        self._committed(await self.db.put(bytearray(key), memoryview(value)), {key: value}, self._ttl_ms)

    async def batch(self) -> None:
        batch, rows = self.db.new_batch(), dict([self._next(), self._next()])
        for key, value in rows.items():
            batch.put(key, value)
        self._committed(await self.db.write(batch), rows, self._ttl_ms)

    async def chosen(self) -> None:
        """Commit under a number that the caller chooses."""
        batch, (key, value) = self.db.new_batch(), self._next()
        batch.put(key, value)
        handle = await self.db.write(batch, seq=self.seq + 10)
        self.seq += 9
        self._committed(handle, {key: value}, self._ttl_ms)

    async def chosen_alone(self) -> None:
        """Put one value under a number that the caller chooses."""
        key, value = self._next()
        handle = await self.db.put(key, value, seq=self.seq + 10)
        self.seq += 9
        self._committed(handle, {key: value}, self._ttl_ms)

    async def refused(self) -> None:
        """Commit with a refused operation, which uses a number."""
        batch = self.db.new_batch()
        batch.merge(b"k", b"v")
        with pytest.raises(MergeOperatorMissing):
            await self.db.write(batch)
        self.seq += 1

    async def delete(self) -> None:
        key, _ = self._next()
        self._committed(await self.db.delete(key), {}, None)
        self.rows.pop(key, None)

    async def arrow(self) -> None:
        rows = dict([self._next(), self._next()])
        table = pa.table({"key": pa.array(rows.keys(), pa.binary()), "value": pa.array(rows.values(), pa.binary())})
        self._committed(await self.db.write_arrow(table), rows, self._ttl_ms)

    async def flush(self, kind: str) -> None:
        await self.db.flush(kind)

    async def later(self, ms: int) -> None:
        self.clock.ms += ms

    async def compare(self, db: shale.Db) -> None:
        found = {row.key: (row.value, row.seq, row.create_ts, row.expire_ts) async for row in db.scan()}
        assert found == self.rows


STEPS = st.one_of(
    st.tuples(st.just("puts"), st.integers(1, 60)),
    st.tuples(st.just("later"), st.integers(1, 3)),
    st.tuples(st.just("flush"), st.sampled_from(["wal", "memtable"])),
    st.tuples(st.sampled_from(["living", "unusual", "batch", "chosen", "chosen_alone", "refused", "delete", "arrow"])),
)


def open_db(store: MemoryStore, env: Env, **settings: Any) -> Any:
    return shale.Db.open("db", store=store, env=env, flush_interval=None, **settings)


@settings(max_examples=examples(50), deadline=None)
@given(steps=st.lists(STEPS, max_size=25), ttl_ms=st.sampled_from([None, 60_000]))
def test_every_row_has_its_own_number_and_time(steps: list[tuple[Any, ...]], ttl_ms: int | None) -> None:
    async def scenario() -> None:
        store, clock = MemoryStore(), ManualClock()
        env = Env(clock, random.Random(1), InlineCpu())
        db = await open_db(store, env, default_ttl_ms=ttl_ms, merge_operator=None)
        checked = CheckedDb(db, clock, ttl_ms)
        # Rows of a burst that has just begun to be prepared for.
        for name, *arguments in [("puts", 20), *steps, ("puts", 1)]:
            await getattr(checked, name)(*arguments)
        assert db.status.last_seq == checked.seq
        await checked.compare(db)
        await db.flush("wal")
        async with open_db(store, env) as successor:
            await checked.compare(successor)

    anyio.run(scenario)


def test_counts_of_rows_do_not_depend_on_how_they_came() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        db = await open_db(MemoryStore(), Env(clock, random.Random(1), InlineCpu()))
        checked = CheckedDb(db, clock, None)
        await checked.puts(50)
        await checked.batch()
        await checked.flush("memtable")
        await checked.puts(30)
        await checked.arrow()
        await checked.delete()
        assert db.status.rows_written == 50 + 2 + 30 + 2 + 1
        await db.close()

    anyio.run(scenario)


def test_time_that_went_back_is_not_the_time_of_a_put() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        db = await open_db(MemoryStore(), Env(clock, random.Random(1), InlineCpu()))
        for _ in range(30):
            await db.put(b"k", b"v")
        clock.ms -= 1
        with pytest.raises(InvalidClockTick):
            await db.put(b"k", b"v")
        clock.ms += 1
        assert (await db.put(b"k", b"v")).seq == 31

    anyio.run(scenario)


def test_a_commit_that_is_refused_in_a_new_millisecond_leaves_no_stamps_of_the_old_one() -> None:
    """A burst takes its number while it waits; then the clock advances."""

    async def scenario() -> None:
        clock = ManualClock()
        db = await open_db(MemoryStore(), Env(clock, random.Random(1), InlineCpu()))

        async def burst() -> None:
            for _ in range(20):
                await db.put(b"a", b"v")
            clock.ms += 1

        async def late() -> None:
            batch = db.new_batch()
            batch.put(b"b", b"v")
            with pytest.raises(InvalidSequenceNumber):
                await db.write(batch, seq=1)
            handle = await db.put(b"c", b"v")
            row = await db.get_row(b"c")
            assert row is not None
            assert (row.seq, row.create_ts) == (handle.seq, handle.create_ts) == (21, clock.ms)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(burst)
            tasks.start_soon(late)
        await db.close()

    anyio.run(scenario)


def stamped(log: RowLog, key: bytes) -> None:
    """Return the stamps that the writer gives."""
    assert len(log) < log.stamped_end
    log.keys.append(key)
    log.values.append(b"v")


def test_stamps_that_were_not_used_are_not_seen() -> None:
    log = RowLog()
    log.append(Entry(b"a", b"1", 1, FLAG_CREATE_TS, 5, 0))
    log.stamp_ahead(10, 2, 6, 100)
    stamped(log, b"b")
    stamped(log, b"c")
    log.append(Entry(b"d", b"", 4, FLAG_CREATE_TS | FLAG_TOMBSTONE, 7, 0))
    assert log.stamped_end == 0
    log.stamp_ahead(3, 9, 8, None)
    stamped(log, b"e")
    rows = log.rows(0, len(log))
    assert rows.seq.tolist() == [1, 2, 3, 4, 9]
    assert rows.create_ts.tolist() == [5, 6, 6, 7, 8]
    assert rows.expire_ts.tolist() == [0, 106, 106, 0, 0]
    assert [log.entry(place).flags for place in range(5)] == rows.flags.tolist()
    assert [log.entry(place).expire_ts for place in range(5)] == rows.expire_ts.tolist()
