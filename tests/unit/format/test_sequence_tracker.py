"""The sequence tracker: recorded points, lookups, and its stored form."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import CorruptionError
from shale.format.sequence_tracker import CAPACITY, INTERVAL_S, SequenceTracker
from shale.types import EMPTY_SEQUENCE_TRACKER


def test_the_empty_form() -> None:
    assert SequenceTracker().encode() == EMPTY_SEQUENCE_TRACKER
    assert SequenceTracker.decode(EMPTY_SEQUENCE_TRACKER).points == []


def test_one_point_per_interval() -> None:
    tracker = SequenceTracker()
    assert tracker.record(1, 1000)
    assert not tracker.record(2, 1000 + INTERVAL_S - 1)
    assert tracker.record(3, 1000 + INTERVAL_S)
    assert tracker.points == [(1, 1000), (3, 1000 + INTERVAL_S)]


def test_every_second_point_goes_when_it_is_full() -> None:
    tracker = SequenceTracker()
    for number in range(CAPACITY + 1):
        tracker.record(number + 1, number * INTERVAL_S)
    assert len(tracker.points) == CAPACITY // 2 + 1
    assert tracker.points[:2] == [(1, 0), (3, 2 * INTERVAL_S)]
    assert tracker.points[-1] == (CAPACITY + 1, CAPACITY * INTERVAL_S)


@pytest.mark.parametrize(
    ("seq", "down", "up"), [(9, None, 100), (10, 100, 100), (15, 100, 160), (20, 160, 160), (21, 160, None)]
)
def test_lookups_round_as_asked(seq: int, down: int | None, up: int | None) -> None:
    tracker = SequenceTracker([(10, 100), (20, 160)])
    assert tracker.seq_to_time(seq) == down
    assert tracker.seq_to_time(seq, round_up=True) == up


def test_times_are_looked_up_alike() -> None:
    tracker = SequenceTracker([(10, 100), (20, 160)])
    assert [tracker.time_to_seq(second) for second in (99, 100, 159, 160, 999)] == [None, 10, 10, 20, 20]
    assert tracker.time_to_seq(101, round_up=True) == 20


steps = st.lists(st.tuples(st.integers(1, 2**30), st.integers(60, 2**20)), max_size=60)


@given(st.integers(0, 2**60), st.integers(0, 2**33), steps)
def test_round_trip(seq: int, second: int, deltas: list[tuple[int, int]]) -> None:
    points = []
    for seq_step, second_step in deltas:
        seq, second = seq + seq_step, second + second_step
        points.append((seq, second))
    assert SequenceTracker.decode(SequenceTracker(points).encode()).points == points


@given(st.binary(max_size=200))
def test_any_bytes_are_points_or_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptionError):
        SequenceTracker.decode(b"\x01" + data)


@pytest.mark.parametrize("cut", range(1, 13))
def test_a_cut_tracker_is_corrupt(cut: int) -> None:
    data = SequenceTracker([(1, 1), (500, 100), (501, 160)]).encode()
    with pytest.raises(CorruptionError):
        SequenceTracker.decode(data[:-cut])


def test_a_count_of_four_billion_is_refused_at_once() -> None:
    with pytest.raises(CorruptionError, match="ends early"):
        SequenceTracker.decode(b"\x01" + b"\xff" * 4 + b"\xff" * 4 + bytes(8) + b"\xff" * 64)
