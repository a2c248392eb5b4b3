"""The changes of flushes to a manifest: conditions, order of retirement, fields."""

from dataclasses import replace

import pytest

from shale.engine.flush.planner import (
    deepest_overlap,
    retirable,
    stall_reason,
    table_stall_reason,
    with_flushed,
    with_wal_end,
)
from shale.engine.memtable.frozen_table import FrozenTable, UploadState
from shale.engine.memtable.memtable import Memtable
from shale.errors import InvalidClockTick, ProtocolPanic
from shale.format.sequence_tracker import SequenceTracker
from shale.types import Manifest, Segment, Seq, Sst, SstInfo, SstView, Tree, Ulid, WalId


def sst(number: int, first: bytes = b"a", last: bytes | None = b"z") -> Sst:
    return Sst(id=Ulid.from_parts(number, 0), info=SstInfo(first_entry=first, last_entry=last))


def view(number: int, first: bytes = b"a", last: bytes | None = b"z") -> SstView:
    return SstView.identity(sst(number, first, last))


def frozen(
    last_seq: int, *, tick: int | None = None, state: UploadState = UploadState.UPLOADED, **changes
) -> FrozenTable:
    table = FrozenTable(
        table=Memtable(),
        first_seq=last_seq - 1,
        last_seq=last_seq,
        last_tick=last_seq * 10 if tick is None else tick,
        replay_after_wal_id=last_seq // 2,
        size_bytes=100,
        state=state,
        ssts=((b"", sst(last_seq)),),
    )
    for name, value in changes.items():
        setattr(table, name, value)
    return table


@pytest.mark.parametrize(
    ("views", "depth"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([view(1, b"a", b"c"), view(2, b"d", b"f")], 1, id="side by side"),
        pytest.param([view(1, b"a", b"c"), view(2, b"c", b"f")], 2, id="one key in common"),
        pytest.param([view(1), view(2, b"b", b"c"), view(3, b"d", b"e")], 2, id="two inside one"),
        pytest.param([view(1, b"m", None), view(2, b"n", b"o")], 2, id="an old file without a last key"),
    ],
)
def test_deepest_overlap(views: list[SstView], depth: int) -> None:
    assert deepest_overlap(views) == depth


@pytest.mark.parametrize(
    ("count", "reserved", "overlapping", "reason"),
    [
        pytest.param(7, 0, True, None, id="room for one"),
        pytest.param(7, 1, True, "num_ssts", id="a flush on its way counts"),
        pytest.param(8, 0, False, "num_ssts", id="full"),
        pytest.param(3, 0, False, None, id="apart"),
        pytest.param(3, 0, True, "num_ssts_per_key", id="all on one key"),
    ],
)
def test_gates(count: int, reserved: int, overlapping: bool, reason: str | None) -> None:
    views = tuple(view(n) if overlapping else view(n, b"%d" % n, b"%d" % n) for n in range(count))
    per_key = 3 if count == 3 else 99
    assert stall_reason(Tree(l0=views), reserved, l0_max_ssts=8, l0_max_ssts_per_key=per_key) == reason


@pytest.mark.parametrize(
    ("segments", "reserved", "reason"),
    [
        pytest.param((b"a",), {}, "num_ssts", id="its tree is full"),
        pytest.param((b"b",), {}, None, id="another tree is full"),
        pytest.param((b"b", b"c"), {b"c": 1}, None, id="room for one more"),
        pytest.param((b"b", b"c"), {b"c": 2}, "num_ssts", id="a new tree fills up with flushes on their way"),
        pytest.param((b"a", b"b"), {b"b": 1}, "num_ssts", id="one full tree is enough"),
    ],
)
def test_every_tree_that_a_table_touches_needs_room(
    segments: tuple[bytes, ...], reserved: dict[bytes, int], reason: str | None
) -> None:
    trees = {b"": Tree(), b"a": Tree(l0=(view(2), view(1))), b"b": Tree(l0=(view(3),))}
    assert table_stall_reason(trees, reserved, segments, l0_max_ssts=2, l0_max_ssts_per_key=9) == reason
    assert table_stall_reason(trees, reserved, segments, l0_max_ssts=99, l0_max_ssts_per_key=99) is None


def test_only_a_prefix_that_is_uploaded_and_durable_retires() -> None:
    tables = [frozen(2), frozen(4), frozen(6, state=UploadState.UPLOADING), frozen(8)]
    assert retirable(tables, 8, wal_enabled=True) == tables[:2]
    assert retirable(tables, 3, wal_enabled=True) == tables[:1]
    assert retirable(tables, 0, wal_enabled=False) == tables[:2]


def test_fields_after_a_flush() -> None:
    base = Manifest(tree=Tree(l0=(view(1),)), last_l0_seq=Seq(1), next_wal_sst_id=WalId(2))
    tables = [
        frozen(4, sequence_points=((3, 100),)),
        frozen(6, ssts=()),
        frozen(8, sequence_points=((7, 130), (8, 160))),
    ]
    flushed = with_flushed(base, tables, last_flushed_wal_id=9)
    assert [v.id.ms for v in flushed.tree.l0] == [8, 4, 1]
    assert (flushed.replay_after_wal_id, flushed.next_wal_sst_id) == (4, 10)
    assert (flushed.last_l0_seq, flushed.recent_snapshot_min_seq, flushed.last_l0_clock_tick) == (8, 8, 80)
    assert SequenceTracker.decode(flushed.sequence_tracker).points == [(3, 100), (8, 160)]


def test_compactors_hear_of_the_oldest_reader() -> None:
    flushed = with_flushed(Manifest(), [frozen(4), frozen(8)], last_flushed_wal_id=9, oldest_read_seq=3)
    assert (flushed.last_l0_seq, flushed.recent_snapshot_min_seq) == (8, 3)


def test_all_segments_of_a_flush_are_in_one_version() -> None:
    old = Segment(prefix=b"b", tree=Tree(l0=(view(1),)))
    base = Manifest(segments=(old,), segment_extractor_name="p", last_l0_seq=Seq(1))
    tables = [frozen(4, ssts=((b"b", sst(4)), (b"c", sst(5)))), frozen(6, ssts=((b"a", sst(6)), (b"b", sst(7))))]
    flushed = with_flushed(base, tables, last_flushed_wal_id=9)
    assert flushed.tree.is_empty
    assert [(segment.prefix, [v.id.ms for v in segment.tree.l0]) for segment in flushed.segments] == [
        (b"a", [6]),
        (b"b", [7, 4, 1]),
        (b"c", [5]),
    ]
    assert flushed.segment_extractor_name == "p"


def test_impossible_flushes_are_refused() -> None:
    base = Manifest(last_l0_seq=Seq(5), last_l0_clock_tick=50)
    with pytest.raises(ProtocolPanic, match="last_l0_seq"):
        with_flushed(base, [frozen(5, tick=60)], last_flushed_wal_id=1)
    with pytest.raises(InvalidClockTick):
        with_flushed(base, [frozen(6, tick=49)], last_flushed_wal_id=1)


def test_a_replay_point_never_goes_back() -> None:
    base = Manifest(replay_after_wal_id=WalId(7), next_wal_sst_id=WalId(8))
    flushed = with_flushed(base, [frozen(4)], last_flushed_wal_id=3)
    assert (flushed.replay_after_wal_id, flushed.next_wal_sst_id) == (7, 8)
    assert replace(flushed, tree=base.tree).checkpoints == base.checkpoints


def test_what_a_close_says_of_the_wal() -> None:
    base = Manifest(replay_after_wal_id=WalId(3), next_wal_sst_id=WalId(5), last_l0_seq=Seq(9))
    flushed = with_wal_end(base, last_flushed_wal_id=6, committed_seq=9)
    assert (flushed.replay_after_wal_id, flushed.next_wal_sst_id) == (6, 7)
    unflushed = with_wal_end(base, last_flushed_wal_id=6, committed_seq=10)
    assert (unflushed.replay_after_wal_id, unflushed.next_wal_sst_id) == (3, 7)
