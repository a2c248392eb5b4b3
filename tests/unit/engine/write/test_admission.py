"""The admission of writes: what each millisecond's first write waits for, records and finds."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from shale.engine.memtable.memtable import ROW_OVERHEAD_BYTES
from shale.engine.write.batch import WriteBatch
from shale.engine.write.pipeline import SEQ_MAX, WritePipeline
from shale.errors import ClosedError, InvalidClockTick, InvalidRequestError, InvalidSequenceNumber, WriteStalled
from shale.kernels.rows import entries_from_rows, rows_from_entries
from shale.types import FLAG_CREATE_TS, Entry, KeyRange, Manifest, Seq, WalId
from tests.clocks import START_MS, ManualClock
from tests.unit.engine.write.timing import Stepped, make_clocked
from tests.unit.engine.writer_parts import Parts, make_parts

START_S = START_MS // 1000


def one_row(key: bytes = b"k") -> WriteBatch:
    batch = WriteBatch()
    batch.put(key, b"v")
    return batch


def columns(*keys: bytes) -> Any:
    return rows_from_entries([Entry(key, b"v", 0, FLAG_CREATE_TS) for key in keys or (b"k",)])


Write = Callable[[WritePipeline], Any]
WRITES: dict[str, Write] = {
    "put": lambda pipeline: pipeline.put(b"k", b"v"),
    "delete": lambda pipeline: pipeline.delete(b"k"),
    "batch": lambda pipeline: pipeline.write(one_row()),
    "columns": lambda pipeline: pipeline.write_columns(columns(), None),
}
every_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@every_write
def test_a_loop_of_writes_gives_way_every_other_millisecond(write: Write) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        parts = await make_clocked(clock)
        waits = []
        for step_ms in (0, 0, 1, 0, 1, 0, 1, 1, 3, 0):
            clock.ms += step_ms
            call = Stepped(write(parts.pipeline))
            await call
            waits.append(call.waits)
            assert call.result.create_ts == clock.ms
        assert waits == [1, 0, 0, 0, 1, 0, 0, 1, 1, 0]

    anyio.run(scenario)


async def waits_of_a_put(parts: Parts) -> int:
    """Return how often a put lets other tasks run."""
    call = Stepped(parts.pipeline.put(b"k", b"v"))
    await call
    return call.waits


@pytest.mark.parametrize(("now_ms", "waits"), [(1, 0), (2, 1)])
def test_the_first_write_gives_way_like_all_others(now_ms: int, waits: int) -> None:
    async def scenario() -> None:
        assert await waits_of_a_put(await make_clocked(ManualClock(now_ms))) == waits

    anyio.run(scenario)


def test_after_a_wal_file_other_tasks_had_their_turn() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        parts = await make_clocked(clock)
        await parts.pipeline.put(b"k", b"v")
        clock.ms += 5
        parts.pipeline.wal_written()
        for step_ms, waits in ((0, 0), (1, 0), (1, 1)):
            clock.ms += step_ms
            assert await waits_of_a_put(parts) == waits

    anyio.run(scenario)


def test_a_clock_that_went_back_gives_way_and_is_awaited() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        parts = await make_clocked(clock)
        await parts.pipeline.put(b"k", b"v")
        clock.ms -= 1
        call = Stepped(parts.pipeline.put(b"k", b"v"))
        assert call.step()
        clock.ms += 1
        assert not call.step()
        assert (call.result.create_ts, call.result.seq) == (START_MS, 2)
        assert parts.pipeline.clock.last_tick == START_MS

    anyio.run(scenario)


@every_write
def test_commit_times_never_go_back(write: Write) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        parts = await make_clocked(clock, new=Manifest(last_l0_clock_tick=START_MS))
        await write(parts.pipeline)
        clock.ms -= 1
        for _ in range(2):
            with pytest.raises(InvalidClockTick):
                await write(parts.pipeline)
        clock.ms += 1
        assert (await write(parts.pipeline)).seq == 2

    anyio.run(scenario)


@every_write
def test_the_first_write_of_a_millisecond_starts_the_timer_of_the_wal(write: Write) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        parts = await make_clocked(clock)
        for step_ms, calls in ((0, 1), (0, 1), (1, 2), (0, 2)):
            clock.ms += step_ms
            await write(parts.pipeline)
            assert parts.listener.calls == ["rows pending"] * calls

    anyio.run(scenario)


@every_write
def test_a_closed_writer_refuses_each_kind(write: Write) -> None:
    async def scenario() -> None:
        parts = await make_parts()
        parts.durability.stop_accepting(ClosedError("closed"))
        with pytest.raises(ClosedError):
            await write(parts.pipeline)
        assert (parts.pipeline.last_seq, parts.listener.calls) == (0, [])

    anyio.run(scenario)


ROW = ROW_OVERHEAD_BYTES + 1
LIMITED: dict[str, Any] = {"l0_sst_size_bytes": 900, "max_unflushed_bytes": 1000, "stall_timeout_s": 0.0}


@pytest.mark.parametrize(("row_bytes", "is_refused"), [(500, True), (499, False), (501, True)])
@every_write
def test_a_write_waits_once_the_unflushed_bytes_are_at_their_limit(
    write: Write, row_bytes: int, *, is_refused: bool
) -> None:
    """A row counts in the memtable and in the WAL buffer.  The write after it, in the same millisecond, must look."""

    async def scenario() -> None:
        parts = await make_clocked(ManualClock(), **LIMITED)
        await parts.pipeline.put(b"k", bytes(row_bytes - ROW))
        assert parts.pipeline.buffers.unflushed_bytes == 2 * row_bytes
        if is_refused:
            with pytest.raises(WriteStalled, match=f"{2 * row_bytes} bytes are unflushed, the limit is 1000"):
                await write(parts.pipeline)
            assert parts.pipeline.last_seq == 1
        else:
            assert (await write(parts.pipeline)).seq == 2

    anyio.run(scenario)


@pytest.mark.parametrize("kind", ["batch", "columns", "delete"])
def test_each_kind_of_write_sends_the_next_one_to_the_limit(kind: str) -> None:
    def large(pipeline: WritePipeline) -> Awaitable[object]:
        key = bytes(500 - (ROW if kind != "delete" else ROW_OVERHEAD_BYTES))
        if kind == "batch":
            return pipeline.write(one_row(key))
        return pipeline.write_columns(columns(key), None) if kind == "columns" else pipeline.delete(key)

    async def scenario() -> None:
        parts = await make_clocked(ManualClock(), **LIMITED)
        await large(parts.pipeline)
        assert parts.pipeline.buffers.active.size_bytes == 500
        with pytest.raises(WriteStalled):
            await parts.pipeline.put(b"k", b"v")

    anyio.run(scenario)


def test_every_threshold_is_computed_anew() -> None:
    async def scenario() -> None:
        parts = await make_clocked(ManualClock(), skip_memtable_bytes=200)
        buffers = parts.pipeline.buffers
        assert buffers.threshold_bytes == 200
        for size, threshold in ((120, 200), (120, 440), (150, 440), (100, 690)):
            await parts.pipeline.put(b"k", bytes(size - ROW))
            assert buffers.threshold_bytes == threshold
        assert parts.listener.calls.count("wal file pending") == 0

    anyio.run(scenario)


def test_a_full_wal_file_is_reported_and_the_memtable_goes_on() -> None:
    async def scenario() -> None:
        parts = await make_clocked(ManualClock(), wal_flush_bytes=300)
        for _ in range(4):
            await parts.pipeline.put(b"k", bytes(100 - ROW))
        buffers = parts.pipeline.buffers
        assert buffers.wal is not None
        assert [(file.id, file.first_seq, file.last_seq) for file in buffers.wal.files] == [(2, 1, 3)]
        assert (parts.listener.calls.count("wal file pending"), len(buffers.active)) == (1, 4)

    anyio.run(scenario)


def test_a_memtable_is_frozen_once_too_many_wal_files_wait_for_its_flush() -> None:
    async def scenario() -> None:
        parts = await make_clocked(
            ManualClock(), new=Manifest(replay_after_wal_id=WalId(3)), max_wal_flushes_before_l0_flush=4096
        )
        frozen = parts.pipeline.buffers.frozen.tables
        await parts.pipeline.put(b"k", b"v")
        for wal_id, tables in ((4098, 0), (4099, 1)):
            parts.durability.durable_wal_id = wal_id
            parts.pipeline.wal_written()
            assert len(frozen) == tables
        await parts.pipeline.put(b"k", b"v")
        for wal_id, tables in ((8194, 1), (8195, 2)):
            parts.durability.durable_wal_id = wal_id
            parts.pipeline.wal_written()
            assert len(frozen) == tables
        assert [table.replay_after_wal_id for table in frozen] == [4099, 8195]

    anyio.run(scenario)


def test_a_pipeline_goes_on_from_its_manifest() -> None:
    async def scenario() -> None:
        new = Manifest(last_l0_seq=Seq(40), last_l0_clock_tick=START_MS + 5, replay_after_wal_id=WalId(3))
        parts = await make_clocked(ManualClock(START_MS + 5), new=new)
        assert (parts.pipeline.last_seq, parts.pipeline.committed_seq) == (40, 40)
        assert parts.pipeline.clock.last_tick == START_MS + 5
        assert parts.pipeline.buffers.wal is not None
        assert parts.pipeline.buffers.wal.next_id == parts.durability.durable_wal_id + 1 == 2
        assert (await parts.pipeline.put(b"k", b"v")).seq == 41

    anyio.run(scenario)


def test_the_sequence_numbers_of_minutes_are_recorded() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        parts = await make_clocked(clock)
        for step_s, seq in ((0, None), (60, 50), (59, None), (1, None)):
            clock.ms += step_s * 1000
            await parts.pipeline.put_with_options(b"k", b"v", None, None, seq)
        assert parts.pipeline.buffers.frozen.sequence_points == [
            (1, START_S), (50, START_S + 60), (52, START_S + 120),
        ]  # fmt: skip
        clock.ms += 60_000
        await parts.pipeline.write(one_row(), 70)
        assert parts.pipeline.buffers.frozen.sequence_points[-1] == (70, START_S + 180)

    anyio.run(scenario)


CHOSEN: dict[str, Callable[[WritePipeline, Any], Any]] = {
    "put": lambda pipeline, seq: pipeline.put_with_options(b"k", b"v", None, None, seq),
    "delete": lambda pipeline, seq: pipeline.delete(b"k", seq),
    "batch": lambda pipeline, seq: pipeline.write(one_row(), seq),
}


@pytest.mark.parametrize("write", CHOSEN.values(), ids=CHOSEN)
def test_which_numbers_a_caller_may_choose(write: Callable[[WritePipeline, Any], Any]) -> None:
    async def scenario() -> None:
        parts = await make_parts()
        pipeline = parts.pipeline
        for impossible in (0, -1, SEQ_MAX + 1, True, 1.0, "1"):
            with pytest.raises(InvalidRequestError, match="is no number from 1 to"):
                await write(pipeline, impossible)
        assert not parts.listener.calls, "refused before anything records it"
        assert (await write(pipeline, 1)).seq == 1
        with pytest.raises(InvalidSequenceNumber, match="seq 1 is not above 1"):
            await write(pipeline, 1)
        assert (await write(pipeline, 2)).seq == 2
        assert (await write(pipeline, 9)).seq == 9
        assert (await write(pipeline, SEQ_MAX)).seq == pipeline.last_seq == pipeline.committed_seq == SEQ_MAX
        rows = entries_from_rows(pipeline.buffers.active.rows())
        assert [row.seq for row in rows] == [SEQ_MAX, 9, 2, 1]

    anyio.run(scenario)


def test_a_chosen_number_that_is_taken_during_the_wait_is_refused() -> None:
    async def scenario() -> None:
        for write in CHOSEN.values():
            parts = await make_clocked(ManualClock())
            call = Stepped(write(parts.pipeline, 1))
            assert call.step()
            parts.pipeline.last_seq = 1
            with pytest.raises(InvalidSequenceNumber):
                call.step()

    anyio.run(scenario)


LIMITS = KeyRange.half_open(b"b", b"d")


@pytest.mark.parametrize(
    ("keys", "is_inside"),
    [((b"b", b"c"), True), ((b"a", b"c"), False), ((b"b", b"d"), False), ((b"c",), True)],
)
def test_columns_and_batches_keep_to_the_range(keys: tuple[bytes, ...], *, is_inside: bool) -> None:
    async def scenario() -> None:
        parts = await make_parts(enforce_visible_range=LIMITS)
        batch = WriteBatch()
        for key in keys:
            batch.put(key, b"v")
        for number, call in enumerate(
            (lambda: parts.pipeline.write_columns(columns(*keys), None), lambda: parts.pipeline.write(batch)), 1
        ):
            if is_inside:
                assert (await call()).seq == number
            else:
                with pytest.raises(InvalidRequestError, match="outside"):
                    await call()
        assert len(parts.pipeline.buffers.active) == (2 * len(keys) if is_inside else 0)

    anyio.run(scenario)


def test_without_a_wal_columns_go_to_the_memtable_only() -> None:
    async def scenario() -> None:
        parts = await make_parts(wal_enabled=False)
        await parts.pipeline.write_columns(columns(b"a", b"b"), None)
        parts.pipeline.request_wal_flush()
        parts.pipeline.freeze_wal()
        assert [row.key for row in entries_from_rows(parts.pipeline.buffers.active.rows())] == [b"a", b"b"]
        assert parts.listener.calls == ["rows pending"]
        with_wal = await make_parts()
        with_wal.pipeline.request_wal_flush()
        assert with_wal.listener.calls == ["wal flush requested"]

    anyio.run(scenario)


def test_refused_commits_in_a_row_use_up_numbers_and_leave_the_newest_commit() -> None:
    def refuse() -> None:
        raise InvalidSequenceNumber("no")

    async def scenario() -> None:
        parts = await make_parts()
        pipeline = parts.pipeline
        seen = []
        for is_refused in (True, True, False, True, True, True, False, False):
            if is_refused:
                with pytest.raises(InvalidSequenceNumber):
                    await pipeline.write(one_row(), guard=refuse)
            else:
                await pipeline.put(b"k", b"v")
            seen.append((pipeline.last_seq, pipeline.committed_seq))
        assert seen == [(1, 0), (2, 0), (3, 3), (4, 3), (5, 3), (6, 3), (7, 7), (8, 8)]
        assert (pipeline.write_batches, pipeline.batch_rows) == (0, 0)

    anyio.run(scenario)


def test_an_empty_batch_is_no_commit() -> None:
    async def scenario() -> None:
        parts = await make_parts()
        with pytest.raises(InvalidRequestError, match="the batch is empty"):
            await parts.pipeline.write(WriteBatch())
        assert (parts.pipeline.last_seq, parts.listener.calls) == (0, [])

    anyio.run(scenario)
