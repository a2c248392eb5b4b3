"""Merging of views: adjacent views of one SST become one, gaps and conflicting orders are kept."""

from dataclasses import replace

from shale.clones.view_merging import merged_l0, merged_run, merged_view
from tests.unit.clones.values import keys, ulid, view

LEFT = view(1, b"a", b"z", keys(None, b"m"))
RIGHT = view(1, b"a", b"z", keys(b"m", None))


def test_adjacent_views_of_one_sst_are_merged() -> None:
    merged = merged_view(LEFT, RIGHT)
    assert merged is not None
    assert (merged.id, merged.visible_range) == (LEFT.id, None)


def test_a_part_keeps_its_range() -> None:
    merged = merged_view(view(1, b"a", b"z", keys(b"c", b"m")), view(1, b"a", b"z", keys(b"m", b"q")))
    assert merged is not None
    assert merged.visible_range == keys(b"c", b"q")


def test_views_with_a_gap_or_of_two_ssts_are_kept_apart() -> None:
    assert merged_view(LEFT, view(1, b"a", b"z", keys(b"n", None))) is None
    assert merged_view(LEFT, view(2, b"a", b"z", keys(b"m", None))) is None
    assert merged_view(RIGHT, LEFT) is None


def test_a_run_merges_neighbors_only() -> None:
    other = view(2, b"m", b"n")
    assert len(merged_run([LEFT, RIGHT, other])) == 2
    assert merged_run([LEFT, other, RIGHT]) == (LEFT, other, RIGHT)


def test_the_precedence_of_each_source_is_kept() -> None:
    newer, older = view(5, b"a", b"b"), view(9, b"c", b"d")
    found = merged_l0([[newer, older], [view(7, b"x", b"y")]])
    assert found is not None
    order = [each.sst.id for each in found]
    assert order.index(ulid(5)) < order.index(ulid(9))


def test_sources_that_order_two_ssts_differently_cannot_be_merged() -> None:
    one, other = view(1, b"a", b"z", keys(None, b"m")), view(2, b"a", b"z", keys(None, b"m"))
    right = [replace(each, visible_range=keys(b"m", None)) for each in (other, one)]
    assert merged_l0([[one, other], right]) is None
