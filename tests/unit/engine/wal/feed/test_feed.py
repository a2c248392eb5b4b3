"""The feed over WAL files of the test: starts, batches, gaps, and rows that were never in the WAL."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.engine.wal.feed.feed import WalFeed
from shale.engine.wal.feed.offset import Edge, FeedOffset, FeedStart, FromSeq
from shale.engine.wal.feed.plan import FeedPart
from shale.engine.wal.feed.reading import OnGap, read_part
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import (
    CorruptionError,
    FeedGap,
    InvalidDbState,
    InvalidRequestError,
    LatestRecordMissing,
    WalTruncated,
)
from shale.format.names import wal_key
from shale.kernels.rows import rows_from_entries
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalFile, WalStore
from shale.sst.wal_builder import build_wal_sst
from shale.store.local_store.adapter import LocalStore
from shale.store.memory import MemoryStore
from shale.types import FLAG_CREATE_TS, Compression, Entry, Manifest, RunId, Seq, SortedRun, Tree, WalId
from tests.golden_files import FIXTURES
from tests.unit.protocol.values import view

ENV = Env(SystemClock(), random.Random(1), InlineCpu())
FENCE: tuple[int, ...] = ()


def wal_file(seqs: Sequence[int], size: int = 10) -> bytes:
    """Return a WAL file with one row per commit; a fence has none."""
    entries = [Entry(b"key-%d" % (seq % 7), bytes(size), seq, FLAG_CREATE_TS, seq * 100) for seq in seqs]
    return build_wal_sst(rows_from_entries(entries), Compression.NONE) if entries else b""


class Harness:
    """A database that consists of a WAL and a manifest."""

    def __init__(self, *, on_gap: OnGap = OnGap.FAIL) -> None:
        self.store = MemoryStore()
        self.wal = WalStore(self.store, "db")
        self.manifests = ManifestStore(self.store, "db", ENV)
        self.feed = WalFeed(self.wal, ManifestStore(self.store, "db", ENV), ENV, on_gap=on_gap)
        self.on_gap = on_gap

    async def say(self, **fields: Any) -> None:
        """Commit a manifest."""
        latest = await self.manifests.try_read_latest()
        base = latest.value if latest is not None else Manifest()
        await self.manifests.commit(latest.id if latest is not None else None, replace(base, **fields))

    async def flushed(self, wal_id: int, seq: int) -> None:
        """Commit a manifest that has all files and all rows up to here in L0."""
        await self.say(
            replay_after_wal_id=WalId(wal_id), next_wal_sst_id=WalId(wal_id + 1), last_l0_seq=Seq(seq),
            recent_snapshot_min_seq=Seq(seq),
        )  # fmt: skip

    async def write(self, files: dict[int, Sequence[int]], **options: Any) -> None:
        for wal_id, seqs in files.items():
            await self.store.put(wal_key("db", wal_id), wal_file(seqs, **options))

    async def seqs_of(self, parts: Sequence[FeedPart]) -> list[int]:
        """Return the seqs that tasks read, each part from its plan only."""
        seqs: list[int] = []
        for part in parts:
            async for _, rows in read_part(self.wal, part, ENV, on_gap=self.on_gap):
                seqs += rows.seq.tolist()
        return seqs

    async def batch(
        self, start: FeedOffset, *, max_files: int | None = None, **how: int
    ) -> tuple[FeedOffset, list[int]]:
        """Read one batch as Spark does: return its end and its seqs."""
        end = await self.feed.end(start, max_files=max_files)
        return end, await self.seqs_of(await self.feed.plan(start, end, **how))


FILES: dict[int, Sequence[int]] = {1: FENCE, 2: (1, 2), 3: (3,), 4: FENCE, 5: (4, 7, 8)}
ALL = [1, 2, 3, 4, 7, 8]


async def harness(files: dict[int, Sequence[int]] = FILES, **options: Any) -> Harness:
    made = Harness(**options)
    await made.say()
    await made.write(files)
    return made


@pytest.mark.parametrize(
    ("start", "offset", "seqs"),
    [
        pytest.param(Edge.LATEST, FeedOffset(5, 8), [], id="latest"),
        pytest.param(Edge.EARLIEST, FeedOffset(0, 0), ALL, id="earliest"),
        pytest.param(FromSeq(0), FeedOffset(1, 0), ALL, id="before everything"),
        pytest.param(FromSeq(1), FeedOffset(1, 0), ALL, id="the first"),
        pytest.param(FromSeq(2), FeedOffset(1, 1, is_inside=True), [2, 3, 4, 7, 8], id="inside a file"),
        pytest.param(FromSeq(3), FeedOffset(2, 2), [3, 4, 7, 8], id="at a file"),
        pytest.param(FromSeq(4), FeedOffset(4, 3), [4, 7, 8], id="after a fence"),
        pytest.param(FromSeq(6), FeedOffset(4, 5, is_inside=True), [7, 8], id="an unused number"),
        pytest.param(FromSeq(9), FeedOffset(5, 8), [], id="the next one"),
    ],
)
def test_beginnings(start: FeedStart, offset: FeedOffset, seqs: list[int]) -> None:
    async def main() -> None:
        h = await harness()
        begun = await h.feed.begin(start)
        assert begun == offset
        end, read = await h.batch(begun)
        assert (end, read) == (FeedOffset(5, 8), seqs)

    anyio.run(main)


@pytest.mark.parametrize(("kept_after", "offset"), [(1, (1, 0)), (2, (2, 2)), (3, (3, 3)), (5, (5, 0)), (9, (5, 0))])
def test_what_may_be_collected_is_no_beginning(kept_after: int, offset: tuple[int, int]) -> None:
    async def main() -> None:
        h = await harness()
        assert await h.feed.begin(Edge.EARLIEST, kept_after=kept_after) == FeedOffset(*offset)

    anyio.run(main)


def test_a_beginning_in_the_future_is_refused() -> None:
    async def main() -> None:
        h = await harness()
        with pytest.raises(InvalidRequestError, match="the last change is 8, so a feed cannot begin with 10"):
            await h.feed.begin(FromSeq(10))

    anyio.run(main)


@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    max_files=st.one_of(st.none(), st.integers(1, 4)),
    part_bytes=st.integers(1, 2000),
    first=st.integers(0, 20),
    grows=st.integers(0, 12),
)
def test_every_change_once_however_batches_and_parts_fall(
    shape: list[int], max_files: int | None, part_bytes: int, first: int, grows: int
) -> None:
    """Files appear while batches are read; offsets are stored and read again between batches."""
    seq, files = 0, {}
    for wal_id, count in enumerate(shape, 1):
        files[wal_id] = range(seq + 1, seq + 1 + count)
        seq += count
    split = min(grows, len(shape))

    async def main() -> None:
        h = await harness({wal_id: files[wal_id] for wal_id in list(files)[:split]})
        before = [seq for wal_id in list(files)[:split] for seq in files[wal_id]]
        wanted = min(first, len(before) + 1)
        offset = await h.feed.begin(FromSeq(wanted))
        read: list[int] = []
        for round_ in range(2):
            if round_:
                await h.write({wal_id: files[wal_id] for wal_id in list(files)[split:]})
            while True:
                end, seqs = await h.batch(offset, max_files=max_files, part_bytes=part_bytes)
                again, seqs_again = await h.batch(offset, max_files=max_files, part_bytes=part_bytes)
                assert (end, seqs) == (again, seqs_again)
                read += seqs
                if end == offset:
                    break
                offset = FeedOffset.from_json(end.to_json())
        assert read == list(range(max(wanted, 1), seq + 1))

    anyio.run(main)


def test_collected_files_are_named_and_nothing_is_given() -> None:
    async def main() -> None:
        h = await harness({**FILES, 6: FENCE, 7: (9,), 8: (10,)})
        start = FeedOffset(2, 2)
        await h.flushed(7, 9)
        for wal_id in (3, 5):
            await h.wal.delete(wal_id)
        end = await h.feed.end(start)
        assert end == FeedOffset(8, 10)
        with pytest.raises(FeedGap, match=r"files 3 to 8, .*, 3, 5 are gone.*earliest.*on_gap"):
            await h.feed.plan(start, end)
        with pytest.raises(FeedGap, match="change 3 may have been before"):
            await h.feed.begin(FromSeq(3))
        earliest = await h.feed.begin(Edge.EARLIEST)
        assert await h.batch(earliest) == (end, [9, 10])

    anyio.run(main)


def test_who_skips_gaps_gets_the_rest_in_order() -> None:
    async def main() -> None:
        h = await harness({**FILES, 6: FENCE, 7: (9,), 8: (10,)}, on_gap=OnGap.SKIP)
        await h.flushed(7, 9)
        for wal_id in (3, 5):
            await h.wal.delete(wal_id)
        assert await h.batch(FeedOffset(0, 0)) == (FeedOffset(8, 10), [1, 2, 9, 10])
        assert await h.batch(await h.feed.begin(FromSeq(3))) == (FeedOffset(8, 10), [9, 10])

    anyio.run(main)


def test_a_file_that_goes_between_plan_and_task() -> None:
    async def main(on_gap: OnGap) -> list[int]:
        h = await harness(on_gap=on_gap)
        parts = await h.feed.plan(FeedOffset(0, 0), FeedOffset(5, 8))
        await h.wal.delete(3)
        return await h.seqs_of(parts)

    with pytest.raises(FeedGap, match=r"db/wal/0+3.sst: the file is gone before it was read"):
        anyio.run(main, OnGap.FAIL)
    assert anyio.run(main, OnGap.SKIP) == [1, 2, 4, 7, 8]


@pytest.mark.parametrize("late", [(8, 9), (3,)], ids=["same seq", "lower seq"])
@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_a_zombies_file_contradicts_the_ones_before_it(late: tuple[int, ...], part_bytes: int) -> None:
    """Also if a part or a batch begins with it."""

    async def main() -> None:
        h = await harness({**FILES, 6: late})
        for start in (FeedOffset(0, 0), FeedOffset(5, 8)):
            with pytest.raises(CorruptionError, match=r"db/wal/0+6.sst: begins with seq"):
                await h.batch(start, part_bytes=part_bytes)

    anyio.run(main)


def test_damage_names_the_file() -> None:
    async def main() -> None:
        h = await harness()
        data = bytearray(wal_file(FILES[5]))
        data[20] ^= 1
        await h.store.put(wal_key("db", 5), bytes(data))
        with pytest.raises(CorruptionError, match=r"db/wal/0+5.sst"):
            await h.batch(FeedOffset(0, 0))

    anyio.run(main)


def test_changes_past_the_wal_are_refused_with_a_reason() -> None:
    """A writer without a WAL leaves only fences."""

    async def main() -> None:
        h = await harness({1: FENCE})
        start = await h.feed.begin(Edge.LATEST)
        assert await h.batch(start) == (start, [])
        await h.flushed(1, 40)
        with pytest.raises(FeedGap, match=r"changes 1 to 40 never went through the WAL.*without a WAL.*bulk"):
            await h.feed.end(start)
        with pytest.raises(FeedGap, match="change 7 is in the database, but in no file"):
            await h.feed.begin(FromSeq(7))
        skipping = WalFeed(h.wal, h.manifests, ENV, on_gap=OnGap.SKIP)
        assert await skipping.end(start) == FeedOffset(1, 40)
        assert await h.feed.begin(Edge.LATEST) == FeedOffset(1, 40)
        await h.write({2: (41,)})
        assert await h.batch(FeedOffset(1, 40)) == (FeedOffset(2, 41), [41])

    anyio.run(main)


@pytest.mark.parametrize("files", [{}, {1: FENCE}, {1: FENCE, 2: (2, 3)}])
def test_a_database_that_was_loaded_in_bulk(files: dict[int, Sequence[int]]) -> None:
    """Its first change is in a run; a request for it fails, other requests return the later changes."""

    async def main() -> None:
        h = await harness(files)
        last = max((seq for seqs in files.values() for seq in seqs), default=1)
        run = SortedRun(id=RunId(0), ssts=(view(1),))
        await h.say(tree=Tree(compacted=(run,)), last_l0_seq=Seq(1))
        for start in (Edge.EARLIEST, FromSeq(0), FromSeq(1)):
            with pytest.raises(FeedGap, match=r"start: .*changes .*ever went through the WAL.* in bulk.*latest"):
                await h.feed.begin(start)
        begun = await h.feed.begin(FromSeq(2))
        assert (await h.batch(begun))[1] == [seq for seqs in files.values() for seq in seqs]
        latest = await h.feed.begin(Edge.LATEST)
        assert latest.seq == last
        await h.write({latest.wal_id + 1: (last + 1,)})
        assert (await h.batch(latest))[1] == [last + 1]
        skipping = WalFeed(h.wal, h.manifests, ENV, on_gap=OnGap.SKIP)
        assert (await skipping.begin(Edge.EARLIEST)).seq == 1

    anyio.run(main)


@pytest.mark.parametrize("start", [Edge.EARLIEST, FromSeq(1)])
def test_a_writer_without_a_wal_is_told_at_once(start: FeedStart) -> None:
    """Cases: SlateDB's database without a WAL, and, for comparison, a fresh or bulk-loaded database."""

    async def main() -> None:
        store = LocalStore(FIXTURES / "wal_disabled")
        parts = WalStore(store, "db"), ManifestStore(store, "db", ENV), ENV
        with pytest.raises(FeedGap, match=r"none of the \d+ changes .* are all fences: its writer works without one"):
            await WalFeed(*parts).begin(start)
        skipping = WalFeed(*parts, on_gap=OnGap.SKIP)
        begun = await skipping.begin(start)
        assert await skipping.plan(begun, await skipping.end(begun)) == ()
        h = await harness({1: FENCE})
        assert (await h.feed.begin(start)).seq == 0

    anyio.run(main)


def test_a_bulk_load_between_files() -> None:
    async def main() -> None:
        h = await harness()
        await h.flushed(5, 100)
        with pytest.raises(FeedGap, match="changes 9 to 100"):
            await h.feed.end(FeedOffset(3, 3))
        end, seqs = await h.batch(FeedOffset(3, 3), max_files=1)
        assert (end, seqs) == (FeedOffset(4, 3), []), "what the WAL has comes first"

    anyio.run(main)


def test_rows_flushed_and_collected_are_no_bypass() -> None:
    async def main() -> None:
        h = await harness()
        await h.flushed(5, 8)
        for wal_id in (2, 3):
            await h.wal.delete(wal_id)
        assert await h.feed.begin(Edge.LATEST) == FeedOffset(5, 8)
        assert await h.feed.begin(Edge.EARLIEST) == FeedOffset(3, 3)
        await h.wal.delete(5)
        await h.write({5: FENCE, 6: FENCE})
        await h.flushed(6, 8)
        assert await h.feed.begin(Edge.LATEST) == FeedOffset(6, 8)

    anyio.run(main)


def test_another_database_in_its_place() -> None:
    async def main() -> None:
        h = await harness()
        with pytest.raises(InvalidDbState, match=r"db/wal/0+9.sst was read once and is gone"):
            await h.feed.end(FeedOffset(9, 20))
        await h.flushed(9, 8)
        assert await h.feed.end(FeedOffset(9, 20)) == FeedOffset(9, 20)

    anyio.run(main)


def test_no_database_and_half_a_database() -> None:
    async def main() -> None:
        h = Harness()
        with pytest.raises(LatestRecordMissing):
            await h.feed.begin(Edge.LATEST)
        await h.say(initialized=False)
        with pytest.raises(InvalidDbState, match="half built"):
            await h.feed.begin(Edge.LATEST)

    anyio.run(main)


@pytest.mark.parametrize("codec", list(Compression))
def test_the_ends_of_a_large_file_are_read_without_its_middle(codec: Compression) -> None:
    """One file exceeds the size that is read whole: the next part receives the offset of its end."""

    async def main() -> None:
        h = await harness({})
        entries = [Entry(b"%d" % seq, random.Random(seq).randbytes(900), seq, 0) for seq in range(1, 1001)]
        await h.store.put(wal_key("db", 1), build_wal_sst(rows_from_entries(entries), codec))
        await h.write({2: (1001,), 3: (1000,)})
        end = await h.feed.end(FeedOffset(0, 0), max_files=2)
        assert end == FeedOffset(2, 1001)
        parts = await h.feed.plan(FeedOffset(0, 0), end, part_bytes=1)
        assert [part.after_seq for part in parts] == [0, 1000]
        assert await h.seqs_of(parts) == list(range(1, 1002))

    anyio.run(main)


def test_one_value_larger_than_what_is_read_of_the_end() -> None:
    async def main() -> None:
        h = await harness({})
        entries = [Entry(b"a", bytes(10), 1, 0), Entry(b"b", random.Random(1).randbytes(400_000), 2, 0)]
        await h.store.put(wal_key("db", 1), build_wal_sst(rows_from_entries(entries), Compression.NONE))
        assert await h.feed.end(FeedOffset(0, 0)) == FeedOffset(1, 2)

    anyio.run(main)


@pytest.mark.parametrize("start", [Edge.LATEST, Edge.EARLIEST, FromSeq(1)])
def test_a_log_that_is_elsewhere_is_told(start: FeedStart) -> None:
    """A reader of the wrong store would see a WAL that ends too early, and wait for ever."""

    async def main() -> None:
        h = Harness()
        await h.say(next_wal_sst_id=WalId(3))
        with pytest.raises(InvalidDbState, match=r"db/wal/0+1.sst does not exist, .* files up to 2: .* wal_store"):
            await h.feed.begin(start)
        await h.write({1: FENCE})
        with pytest.raises(InvalidDbState, match=r"db/wal/0+2.sst does not exist"):
            await h.feed.end(FeedOffset(0, 0))
        await h.write({2: (1,)})
        assert await h.feed.end(FeedOffset(0, 0)) == FeedOffset(2, 1)

    anyio.run(main)


def test_a_listing_that_is_wrong_does_not_keep_a_feed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may list deleted objects; once the listing is correct, the feed begins."""

    async def main() -> None:
        h = await harness()
        await h.flushed(3, 3)
        listed = await h.wal.list()
        await h.wal.delete(2)

        async def wrong() -> list[WalFile]:
            return listed

        with monkeypatch.context() as patch:
            patch.setattr(h.wal, "list", wrong)
            with pytest.raises(WalTruncated, match="WAL file 2"):
                await h.feed.begin(Edge.EARLIEST)
        assert await h.feed.begin(Edge.EARLIEST) == FeedOffset(2, 2)

    anyio.run(main)
