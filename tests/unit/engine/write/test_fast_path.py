"""The fast path of puts: it writes the same rows as all other paths, and ends when anything has changed."""

import random
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from shale.engine.write.batch import WriteBatch
from shale.errors import EmptySegmentPrefix, InvalidClockTick, InvalidRequestError, InvalidSequenceNumber
from shale.format.sst.filter_policy import FixedPrefix
from shale.kernels.rows import Rows, entries_from_rows, rows_from_entries
from shale.merge_operators import concatenate
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry, KeyRange
from tests.clocks import START_MS, ManualClock
from tests.unit.engine.write.timing import Stepped, make_clocked
from tests.unit.engine.writer_parts import Parts


def stamped_end(parts: Parts) -> int:
    return parts.pipeline.buffers.active.log.stamped_end


async def puts(parts: Parts, count: int) -> None:
    for number in range(count):
        handle = await parts.pipeline.put(b"%d" % number, b"v")
        assert (handle.seq, handle.create_ts) == (parts.pipeline.last_seq, parts.env.clock.now_ms())


def test_stamps_are_prepared_for_as_many_puts_as_the_burst_has_had() -> None:
    """Few puts in a millisecond have none, and a burst has them for at most 4096 puts."""

    async def scenario() -> None:
        parts = await make_clocked(ManualClock())
        prepared = [stamped_end(parts)]
        for _ in range(12_802):
            await puts(parts, 1)
            if stamped_end(parts) != prepared[-1]:
                prepared.append(stamped_end(parts))
        doubling = [17, 35, 71, 143, 287, 575, 1151, 2303, 4607]
        assert [end for end in prepared if end] == [*doubling, 4608 + 4096, 8705 + 4096, 12_802 + 4096]

    anyio.run(scenario)


@pytest.mark.parametrize(("before", "prepared"), [(0, 0), (7, 0), (8, 9 + 8), (9, 10 + 9), (20, 21 + 20)])
def test_the_first_put_of_a_millisecond_has_stamps_after_a_burst(before: int, prepared: int) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        parts = await make_clocked(clock)
        await puts(parts, before)
        clock.ms += 1
        await puts(parts, 1)
        assert stamped_end(parts) == prepared

    anyio.run(scenario)


@pytest.mark.parametrize(("rows", "prepared"), [(6, 0), (7, 8 + 8)])
def test_rows_of_other_writes_count_as_a_burst(rows: int, prepared: int) -> None:
    async def scenario() -> None:
        parts = await make_clocked(ManualClock())
        batch = WriteBatch()
        for number in range(rows):
            batch.put(b"%d" % number, b"v")
        await parts.pipeline.write(batch)
        await puts(parts, 1)
        assert stamped_end(parts) == prepared

    anyio.run(scenario)


def test_a_burst_goes_on_in_the_next_millisecond() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        parts = await make_clocked(clock)
        for _ in range(20):
            await puts(parts, 30)
            clock.ms += 1
        rows = entries_from_rows(parts.pipeline.buffers.active.rows())
        assert sorted((row.seq, row.create_ts) for row in rows) == [
            (seq, START_MS + (seq - 1) // 30) for seq in range(1, 601)
        ]

    anyio.run(scenario)


class Expected:
    """The rows that a history of writes must leave, and what the pipeline must tell about them."""

    def __init__(self, parts: Parts, clock: ManualClock, seed: int) -> None:
        self.parts = parts
        self.clock = clock
        self.rng = random.Random(seed)
        self.rows: list[Entry] = []
        self.seq = 0
        self.committed = 0
        self.counts = {"deletes": 0, "merges": 0, "write_batches": 0, "batch_rows": 0}

    async def write(self) -> None:
        """Make one random write; several puts in a row are the most frequent."""
        kind = self.rng.choices(
            ("puts", "put_ttl", "delete", "merge", "batch", "columns", "refused", "late", "freeze", "clock", "wal"),
            (12, 1, 1, 1, 1, 1, 1, 1, 1, 4, 1),
        )[0]
        await getattr(self, f"_{kind}")()
        pipeline = self.parts.pipeline
        assert (pipeline.last_seq, pipeline.committed_seq) == (self.seq, self.committed)
        assert {name: getattr(pipeline, name) for name in self.counts} == self.counts

    def _key(self) -> bytes:
        return b"%02d" % self.rng.randrange(40)

    def _row(self, key: bytes, value: bytes, flags: int, lifetime: int | None, seq: int | None = None) -> None:
        self.seq = self.committed = self.seq + 1 if seq is None else seq
        self._add(key, value, flags, lifetime)

    def _add(self, key: bytes, value: bytes, flags: int, lifetime: int | None) -> None:
        flags |= FLAG_CREATE_TS | (0 if lifetime is None else FLAG_EXPIRE_TS)
        expires = 0 if lifetime is None else self.clock.ms + lifetime
        self.rows.append(Entry(key, value, self.seq, flags, self.clock.ms, expires))

    async def _puts(self) -> None:
        for number in range(self.rng.choice((1, 5, 40))):
            key = self._key()
            handle = await self.parts.pipeline.put(key, b"%d" % number)
            self._row(key, b"%d" % number, 0, self.parts.options.default_ttl_ms)
            assert (handle.seq, handle.create_ts) == (self.seq, self.clock.ms)

    async def _put_ttl(self) -> None:
        key, seq = self._key(), self.rng.choice((None, self.seq + 5))
        await self.parts.pipeline.put_with_options(key, b"own", 3, None, seq)
        self._row(key, b"own", 0, 3000, seq)

    async def _delete(self) -> None:
        key = self._key()
        await self.parts.pipeline.delete(key)
        self._row(key, b"", FLAG_TOMBSTONE, None)
        self.counts["deletes"] += 1

    async def _merge(self) -> None:
        key = self._key()
        await self.parts.pipeline.merge(key, b"+", None, None)
        self._row(key, b"+", FLAG_MERGE, self.parts.options.default_ttl_ms)
        self.counts["merges"] += 1

    async def _batch(self) -> None:
        batch, keys = WriteBatch(), sorted({self._key() for _ in range(4)})
        for key in keys:
            batch.put(key, b"batch")
        await self.parts.pipeline.write(batch)
        self.seq = self.committed = self.seq + 1
        for key in keys:
            self._add(key, b"batch", 0, self.parts.options.default_ttl_ms)
        self.counts["write_batches"] += 1
        self.counts["batch_rows"] += len(keys)

    async def _columns(self) -> None:
        keys, lifetime = sorted({self._key() for _ in range(4)}), self.rng.choice((None, 70))
        rows = rows_from_entries([Entry(key, b"columns", 0, FLAG_CREATE_TS) for key in keys])
        await self.parts.pipeline.write_columns(rows, lifetime)
        self.seq = self.committed = self.seq + 1
        for key in keys:
            self._add(key, b"columns", 0, lifetime)
        self.counts["write_batches"] += 1
        self.counts["batch_rows"] += len(keys)

    async def _refused(self) -> None:
        def refuse() -> None:
            raise InvalidRequestError("no")

        batch = WriteBatch()
        batch.put(b"refused", b"")
        for _ in range(self.rng.choice((1, 2))):
            with pytest.raises(InvalidRequestError):
                await self.parts.pipeline.write(batch, guard=refuse)
            self.seq += 1

    async def _late(self) -> None:
        with pytest.raises((InvalidSequenceNumber, InvalidRequestError)):
            await self.parts.pipeline.put_with_options(b"late", b"", None, None, self.seq)

    async def _freeze(self) -> None:
        self.parts.pipeline.freeze()

    async def _wal(self) -> None:
        self.parts.pipeline.freeze_wal()

    async def _clock(self) -> None:
        self.clock.ms += 1


def in_tables(parts: Parts) -> Iterator[Rows]:
    for frozen in parts.pipeline.buffers.frozen.tables:
        yield frozen.table.rows()
    yield parts.pipeline.buffers.active.rows()


def in_the_wal(parts: Parts) -> Iterator[Rows]:
    wal = parts.pipeline.buffers.wal
    assert wal is not None
    wal.freeze()
    for file in wal.files:
        yield from file.pieces()


@pytest.mark.parametrize("ttl_ms", [None, 5000])
@pytest.mark.parametrize("seed", range(6))
def test_any_history_leaves_its_rows_in_the_memtables_and_in_the_wal(seed: int, ttl_ms: int | None) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        parts = await make_clocked(clock, operator=concatenate, default_ttl_ms=ttl_ms)
        expected = Expected(parts, clock, seed)
        for _ in range(150):
            await expected.write()
        stored = [row for rows in in_tables(parts) for row in entries_from_rows(rows)]
        assert sorted(stored) == sorted(expected.rows)
        logged = [row for rows in in_the_wal(parts) for row in entries_from_rows(rows)]
        assert logged == expected.rows, "in the order of writing"

    anyio.run(scenario)


RANGE = KeyRange.half_open(b"a", b"b")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"enforce_visible_range": RANGE}, InvalidRequestError),
        ({"segment_extractor": FixedPrefix("two", 2)}, EmptySegmentPrefix),
    ],
    ids=["a range of keys", "segments"],
)
def test_a_put_that_must_be_checked_never_takes_the_fast_path(options: dict[str, Any], error: type[Exception]) -> None:
    async def scenario() -> None:
        parts = await make_clocked(ManualClock(), **options)
        for _ in range(40):
            await parts.pipeline.put(b"aa", b"v")
            with pytest.raises(error):
                await parts.pipeline.put(b"x", b"v")
        assert stamped_end(parts) == 0
        assert len(parts.pipeline.buffers.active) == 40

    anyio.run(scenario)


def test_the_fast_path_ends_with_its_millisecond_in_both_directions() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        parts = await make_clocked(clock)
        await puts(parts, 10)
        assert stamped_end(parts) == 17
        clock.ms -= 1
        with pytest.raises(InvalidClockTick):
            await parts.pipeline.put(b"k", b"v")
        clock.ms += 1
        await puts(parts, 1)

    anyio.run(scenario)


def test_a_put_on_the_fast_path_asks_nothing_and_waits_for_nothing() -> None:
    async def scenario() -> None:
        parts = await make_clocked(ManualClock())
        await puts(parts, 9)
        assert parts.listener.calls == ["rows pending"]
        put = Stepped(parts.pipeline.put(b"k", b"v"))
        assert not put.step()
        assert stamped_end(parts) == 17, "the stamps of the ninth put"
        await put.result.durable()
        assert parts.listener.calls == ["rows pending", "durable 10"]

    anyio.run(scenario)


def test_the_stamps_of_a_refused_write_that_waited_are_dropped() -> None:
    """Another write takes its number meanwhile, and the clock goes on."""

    async def scenario() -> None:
        clock = ManualClock()
        parts = await make_clocked(clock)
        await puts(parts, 9)
        clock.ms += 2
        first = Stepped(parts.pipeline.put(b"first", b"v"))
        late = Stepped(parts.pipeline.put_with_options(b"late", b"v", None, None, 10))
        assert first.step()
        assert late.step()
        assert not first.step()
        assert stamped_end(parts) == 19
        clock.ms += 1
        with pytest.raises(InvalidSequenceNumber):
            late.step()
        await puts(parts, 30)
        rows = entries_from_rows(parts.pipeline.buffers.active.rows())
        assert [row.create_ts - START_MS for row in sorted(rows, key=lambda row: row.seq)] == [0] * 9 + [2] + [3] * 30

    anyio.run(scenario)


def test_after_an_invalidation_the_next_put_asks_again() -> None:
    async def scenario() -> None:
        parts = await make_clocked(ManualClock())
        await puts(parts, 9)
        parts.pipeline.invalidate_fast_path()
        await puts(parts, 2)
        assert parts.listener.calls == ["rows pending", "rows pending"]

    anyio.run(scenario)
