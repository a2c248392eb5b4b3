"""The write pipeline alone: its changes, and the calls to its listener."""

import anyio
import pytest

from shale.engine.memtable.memtable import Memtable
from shale.engine.write.batch import WriteBatch
from shale.errors import ClosedError, EmptySegmentPrefix, FencedError, InvalidSegmentPrefix, InvalidSequenceNumber
from shale.format.sst.filter_policy import FixedPrefix
from shale.kernels.rows import rows_from_entries
from shale.types import FLAG_CREATE_TS, Entry, Manifest, Segment, Seq, Tree, WalId
from tests.unit.engine.writer_parts import make_parts


def test_a_put_is_in_the_memtable_and_in_the_wal_buffer() -> None:
    async def scenario() -> None:
        parts = await make_parts()
        handle = await parts.pipeline.put(b"k", b"v")
        buffers = parts.pipeline.buffers
        assert buffers.active.newest_value(b"k") == b"v"
        assert (handle.seq, parts.pipeline.committed_seq, buffers.rows_written) == (1, 1, 1)
        assert buffers.wal is not None
        assert buffers.wal.size_bytes == buffers.active.size_bytes
        assert parts.listener.calls == ["rows pending"]
        await handle.durable()
        assert parts.listener.calls[-1] == "durable 1"

    anyio.run(scenario)


def test_a_full_memtable_is_frozen_and_the_listener_is_told_in_order() -> None:
    async def scenario() -> None:
        parts = await make_parts(l0_sst_size_bytes=1000, max_unflushed_bytes=100_000)
        parts.durability.durable_wal_id = 7
        await parts.pipeline.put(b"k", bytes(2000))
        buffers = parts.pipeline.buffers
        assert [len(frozen.table) for frozen in buffers.frozen.tables] == [1]
        assert buffers.frozen.tables[0].replay_after_wal_id == 7
        assert not len(buffers.active)
        assert parts.listener.calls == ["rows pending", "memtable frozen", "memtables changed", "wal file pending"]

    anyio.run(scenario)


@pytest.mark.parametrize("is_burst", [False, True])
def test_a_large_commit_is_in_a_wal_file_of_its_own(is_burst: bool) -> None:
    async def scenario() -> None:
        parts = await make_parts(skip_memtable_bytes=1000)
        pipeline, small = parts.pipeline, 300 if is_burst else 3
        for _ in range(small):
            await pipeline.put(b"small", b"v")
        large = await pipeline.put(b"large", bytes(1000))
        assert parts.listener.calls[-1] == "wal file pending"
        await pipeline.put(b"after", b"v")
        wal = pipeline.buffers.wal
        assert wal is not None
        assert [(file.first_seq, file.last_seq) for file in wal.files] == [(1, large.seq - 1), (large.seq, large.seq)]
        assert len(pipeline.buffers.active) == small + 2, "the memtable goes on"

    anyio.run(scenario)


def test_only_the_pipeline_retires_tables_oldest_first() -> None:
    async def scenario() -> None:
        parts = await make_parts()
        for key in (b"a", b"b"):
            await parts.pipeline.put(key, b"v")
            parts.pipeline.freeze()
        parts.pipeline.retire(1)
        (left,) = parts.pipeline.buffers.frozen.tables
        assert left.table.newest_value(b"b") == b"v"

    anyio.run(scenario)


def test_an_empty_memtable_is_not_frozen() -> None:
    async def scenario() -> None:
        parts = await make_parts()
        parts.pipeline.freeze()
        assert not parts.pipeline.buffers.frozen.tables
        assert not parts.listener.calls

    anyio.run(scenario)


def test_installed_rows_are_not_counted_and_not_written_to_the_wal_again() -> None:
    async def scenario() -> None:
        parts = await make_parts()
        table = Memtable()
        table.append(Entry(b"k", b"v", 41, FLAG_CREATE_TS, 5))
        parts.pipeline.install(table, 41, 5, wal_id=3)
        buffers = parts.pipeline.buffers
        assert (parts.pipeline.last_seq, buffers.rows_written) == (41, 0)
        assert buffers.wal is not None
        assert buffers.wal.size_bytes == 0
        assert (await parts.pipeline.put(b"l", b"v")).seq == 42
        parts.pipeline.install(Memtable(), 42, None, wal_id=9)
        assert buffers.frozen.tables[0].replay_after_wal_id == 3, "the stamp of what was consumed, not of the new files"

    anyio.run(scenario)


def replayed(*seqs: int) -> Memtable:
    table = Memtable()
    for seq in seqs:
        table.append(Entry(b"k", b"v", seq, FLAG_CREATE_TS, 5))
    return table


def test_what_replay_installs_moves_the_frontiers_only_forward() -> None:
    async def scenario() -> None:
        new = Manifest(last_l0_seq=Seq(40), last_l0_clock_tick=600_000)
        parts = await make_parts(new=new)
        pipeline = parts.pipeline
        seen = []
        for seq, tick in ((41, 700_000), (39, 650_000), (45, None), (44, 900_000)):
            pipeline.install(replayed(seq), seq, tick, wal_id=seq)
            seen.append((pipeline.last_seq, pipeline.clock.last_tick))
        assert seen == [(41, 700_000), (41, 700_000), (45, 700_000), (45, 900_000)]
        assert pipeline.buffers.frozen.sequence_points == [(41, 700), (44, 900)]
        assert [table.last_tick for table in pipeline.buffers.frozen.tables] == [700_000] * 3
        assert parts.listener.calls == ["memtables changed", *["memtable frozen", "memtables changed"] * 3]

    anyio.run(scenario)


def test_a_replayed_table_is_stamped_with_the_last_file_that_was_passed() -> None:
    async def scenario() -> None:
        parts = await make_parts(new=Manifest(replay_after_wal_id=WalId(2)))
        pipeline = parts.pipeline
        await pipeline.put(b"k", b"v")
        pipeline.install(replayed(41), 41, 5, wal_id=4)
        pipeline.skip_replayed(6)
        pipeline.install(replayed(42), 42, 5, wal_id=7)
        assert [table.replay_after_wal_id for table in pipeline.buffers.frozen.tables] == [2, 6]

    anyio.run(scenario)


def test_segments_follow_the_tables() -> None:
    async def scenario() -> None:
        parts = await make_parts(segment_extractor=FixedPrefix("one", 1))
        pipeline = parts.pipeline
        woken: list[str] = []

        async def wait() -> None:
            await parts.durability.status_changed.wait()
            woken.append("status changed")

        pipeline.install(replayed(41), 41, 5, wal_id=4, segments=(b"c", b"a"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await pipeline.put(b"b1", b"v")
        assert woken == ["status changed"]
        pipeline.freeze()
        batch = WriteBatch()
        batch.put(b"x1", b"v")
        batch.put(b"a1", b"v")
        await pipeline.write(batch)
        rows = rows_from_entries([Entry(b"y", b"v", 0, FLAG_CREATE_TS)])
        await pipeline.write_columns(rows, None, [b"y"])
        pipeline.freeze()
        assert [table.segments for table in pipeline.buffers.frozen.tables] == [(b"a", b"b", b"c"), (b"a", b"x", b"y")]
        plain = await make_parts()
        await plain.pipeline.put(b"k", b"v")
        plain.pipeline.freeze()
        assert plain.pipeline.buffers.frozen.tables[0].segments == (b"",)

    anyio.run(scenario)


@pytest.mark.parametrize("where", ["active", "frozen", "manifest"])
def test_columns_whose_segments_would_nest_are_refused_and_use_a_number_up(where: str) -> None:
    async def scenario() -> None:
        segments = (Segment(prefix=b"ab", tree=Tree()),) if where == "manifest" else ()
        manifest = Manifest(segment_extractor_name="two", segments=segments)
        parts = await make_parts(segment_extractor=FixedPrefix("two", 2), new=manifest)
        await parts.pipeline.put(b"ab1" if where != "manifest" else b"zz1", b"v")
        if where == "frozen":
            parts.pipeline.freeze()
        for _ in range(20):  # a burst, whose stamps would be in the way
            await parts.pipeline.put(b"zz2", b"v")
        rows = len(parts.pipeline.buffers.active)
        with pytest.raises(InvalidSegmentPrefix):
            await parts.pipeline.write_columns(
                rows_from_entries([Entry(b"abc", b"v", 0, FLAG_CREATE_TS)]), None, [b"abc"]
            )
        assert (parts.pipeline.committed_seq, parts.pipeline.last_seq) == (21, 22)
        with pytest.raises(EmptySegmentPrefix):
            await parts.pipeline.put(b"a", b"v")
        assert (parts.pipeline.committed_seq, parts.pipeline.last_seq) == (21, 23)
        assert len(parts.pipeline.buffers.active) == rows
        assert (await parts.pipeline.put(b"ab2", b"v")).seq == 24

    anyio.run(scenario)


def test_flushed_tables_are_handed_to_the_history() -> None:
    async def scenario() -> None:
        parts = await make_parts()
        pipeline = parts.pipeline
        window = pipeline.history.begin(0)
        await pipeline.put(b"k", b"v")
        pipeline.freeze()
        table = pipeline.buffers.frozen.tables[0].table
        assert pipeline.history.size_bytes == 0
        await pipeline.forget_flushed([table])
        assert pipeline.history.size_bytes == 1 + 16
        assert window.wrote_any([b"k"])
        await pipeline.put(b"l", b"v")
        assert window.wrote_any([b"l"])

    anyio.run(scenario)


def test_a_refused_commit_uses_its_number_up() -> None:
    async def scenario() -> None:
        parts = await make_parts()
        batch = WriteBatch()
        batch.put(b"k", b"v")

        def refuse() -> None:
            raise InvalidSequenceNumber("no")

        with pytest.raises(InvalidSequenceNumber):
            await parts.pipeline.write(batch, guard=refuse)
        assert (parts.pipeline.committed_seq, parts.pipeline.last_seq) == (0, 1)
        assert (await parts.pipeline.put(b"k", b"v")).seq == 2
        assert parts.pipeline.committed_seq == 2

    anyio.run(scenario)


@pytest.mark.parametrize("is_burst", [False, True])
def test_nothing_is_written_after_a_failure(is_burst: bool) -> None:
    async def scenario() -> None:
        parts = await make_parts()
        for number in range(100 if is_burst else 1):
            await parts.pipeline.put(b"%d" % number, b"v")
        parts.durability.fail(FencedError("a newer writer claimed"))
        parts.pipeline.invalidate_fast_path()
        rows = len(parts.pipeline.buffers.active)
        with pytest.raises(FencedError):
            await parts.pipeline.put(b"k", b"v")
        assert len(parts.pipeline.buffers.active) == rows

    anyio.run(scenario)


def test_a_closed_writer_refuses_writes() -> None:
    async def scenario() -> None:
        parts = await make_parts()
        parts.durability.stop_accepting(ClosedError("closed"))
        with pytest.raises(ClosedError):
            await parts.pipeline.delete(b"k")

    anyio.run(scenario)
