"""Range planning (docs/reference/protocol.md 6.12)."""

from hypothesis import given
from hypothesis import strategies as st

from shale.types import EVERYTHING, KeyRange
from shale_compactor.execution.subcompactions import Anchor, plan_ranges, sample_anchors


def key(index: int) -> bytes:
    return b"k%06d" % index


def anchors(count: int, size: int = 10) -> list[Anchor]:
    return [Anchor(key(i), size) for i in range(count)]


def test_blocks_are_grouped_into_at_most_128_anchors():
    keys, offsets = [key(i) for i in range(300)], list(range(0, 3000, 10))
    sampled = sample_anchors(keys, offsets, 3005, EVERYTHING)
    assert len(sampled) == 100
    assert sampled[0] == Anchor(key(0), 30)
    assert sampled[-1] == Anchor(key(297), 35)


def test_anchors_outside_the_view_are_dropped():
    visible = KeyRange.half_open(key(1), key(3))
    sampled = sample_anchors([key(i) for i in range(4)], [0, 10, 20, 30], 40, visible)
    assert sampled == [Anchor(key(1), 10), Anchor(key(2), 10)]


def test_equal_shares():
    ranges = plan_ranges(anchors(100), max_subcompactions=4, largest_input_bytes=250)
    assert ranges == (
        KeyRange.half_open(None, key(25)),
        KeyRange.half_open(key(25), key(50)),
        KeyRange.half_open(key(50), key(75)),
        KeyRange.half_open(key(75), None),
    )


def test_no_range_is_planned_smaller_than_the_largest_input():
    assert len(plan_ranges(anchors(100), max_subcompactions=4, largest_input_bytes=500)) == 2
    assert plan_ranges(anchors(100), max_subcompactions=4, largest_input_bytes=1000) == (EVERYTHING,)


def test_one_range_when_switched_off_empty_or_all_keys_equal():
    assert plan_ranges(anchors(100), max_subcompactions=1, largest_input_bytes=0) == (EVERYTHING,)
    assert plan_ranges([], max_subcompactions=4, largest_input_bytes=0) == (EVERYTHING,)
    same = [Anchor(b"k", 10)] * 8
    assert plan_ranges(same, max_subcompactions=4, largest_input_bytes=10) == (EVERYTHING,)


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=2), st.integers(0, 100)), max_size=60),
    st.integers(1, 8),
    st.integers(0, 200),
)
def test_ranges_cover_all_keys_once(points, ranges_max, largest):
    ranges = plan_ranges(
        [Anchor(*point) for point in points], max_subcompactions=ranges_max, largest_input_bytes=largest
    )
    assert 1 <= len(ranges) <= ranges_max
    for probe in [b"", b"\xff\xff\xff", *(point[0] for point in points)]:
        assert sum(keys.contains(probe) for keys in ranges) == 1
    for keys in ranges[1:-1]:
        assert not keys.is_empty
