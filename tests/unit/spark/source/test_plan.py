"""Splitting keys into tasks: each requested key belongs to one task, and no other key to any."""

from hypothesis import given
from hypothesis import strategies as st

from shale.types import KeyRange
from shale_compactor.execution.subcompactions import Anchor
from shale_spark.source import read_plan as planning
from shale_spark.source.filters import KeySet
from shale_spark.source.read_plan import plan_key_sets

KEYS = st.binary(min_size=1, max_size=3)
ANCHORS = st.lists(st.builds(Anchor, KEYS, st.integers(0, 1000)), max_size=30)
RANGES = st.builds(KeyRange.half_open, st.none() | KEYS, st.none() | KEYS)


@given(ANCHORS, RANGES, st.integers(1, 5000), st.lists(KEYS, max_size=40))
def test_ranges_are_cut_without_gap_or_overlap(
    anchors: list[Anchor], key_range: KeyRange, partition_bytes: int, keys: list[bytes]
) -> None:
    """In the order of their keys."""
    parts = plan_key_sets(anchors, KeySet(key_range), partition_bytes)
    for key in [*keys, *(anchor.key for anchor in anchors)]:
        assert sum(part.key_range.contains(key) for part in parts) == key_range.contains(key)
    firsts = [part.key_range.first_key or b"" for part in parts]
    assert firsts == sorted(set(firsts))
    assert not any(part.is_empty for part in parts)


@given(st.sets(KEYS, max_size=40), st.integers(1, 7))
def test_single_keys_are_cut_by_number(keys: set[bytes], per_task: int) -> None:
    """The amount of data between them does not matter."""
    before, planning.KEYS_PER_TASK = planning.KEYS_PER_TASK, per_task
    try:
        parts = plan_key_sets([Anchor(b"a", 10**9)], KeySet().among(keys), 1)
    finally:
        planning.KEYS_PER_TASK = before
    assert [key for part in parts for key in part.keys or ()] == sorted(keys)
    assert all(0 < len(part.keys or ()) <= per_task for part in parts)
