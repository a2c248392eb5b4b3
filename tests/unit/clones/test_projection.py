"""Projection: the examples of docs/reference/protocol.md 11.1, and rows as a model."""

from dataclasses import replace

import pytest
from hypothesis import given

from shale.clones.projection import project
from shale.clones.ranges import is_within
from shale.errors import InvalidProjection
from shale.types import EVERYTHING, KeyRange, Manifest, Segment, Tree
from tests.unit.clones.databases import KEYS, databases, key_ranges
from tests.unit.clones.values import Contents, after, closed, external, keys, run, tree, ulid, versions, view, visible

H_TO_O = keys(b"h", b"o")


def test_l0s_are_cut_each_on_its_own() -> None:
    manifest = Manifest(tree=tree([view(3, b"a"), view(2, b"f"), view(1, b"m")]))
    projected = project(manifest, H_TO_O).tree.l0
    assert visible(projected) == [(3, H_TO_O), (2, H_TO_O), (1, keys(b"m", b"o"))]


def test_a_view_of_a_run_ends_where_the_next_begins() -> None:
    manifest = Manifest(tree=tree(runs=[run(0, view(1, b"a", b"e"), view(2, b"f", b"l"), view(3, b"m", b"z"))]))
    (projected,) = project(manifest, H_TO_O).tree.compacted
    assert visible(projected.ssts) == [(2, keys(b"h", b"m")), (3, keys(b"m", b"o"))]


def test_a_last_view_whose_end_is_unknown_is_kept() -> None:
    manifest = Manifest(tree=tree(runs=[run(0, view(1, b"a", None))]))
    (projected,) = project(manifest, H_TO_O).tree.compacted
    assert visible(projected.ssts) == [(1, H_TO_O)]


def test_a_range_between_two_ssts_leaves_neither() -> None:
    manifest = Manifest(tree=tree(runs=[run(4, view(1, b"a", b"c"), view(2, b"x", b"z")), run(1, view(3, b"h", b"i"))]))
    projected = project(manifest, H_TO_O).tree.compacted
    assert [(each.id, visible(each.ssts)) for each in projected] == [(1, [(3, closed(b"h", b"i"))])]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (
            keys(b"a", b"z"),
            [(1, closed(b"a", b"k")), (2, closed(b"k", b"k")), (3, keys(b"k", b"x")), (4, keys(b"x", b"z"))],
        ),
        (keys(b"a", b"k"), [(1, keys(b"a", b"k"))]),
        (
            keys(b"k", b"z"),
            [(1, closed(b"k", b"k")), (2, closed(b"k", b"k")), (3, keys(b"k", b"x")), (4, keys(b"x", b"z"))],
        ),
    ],
)
def test_a_key_that_spans_ssts_stays_whole(wanted: KeyRange, expected: list[tuple[int, KeyRange]]) -> None:
    spanning = run(0, view(1, b"a", b"k"), view(2, b"k", b"k"), view(3, b"k", b"p"), view(4, b"x", b"z"))
    (projected,) = project(Manifest(tree=tree(runs=[spanning])), wanted).tree.compacted
    assert visible(projected.ssts) == expected


def test_what_was_cut_off_does_not_come_back() -> None:
    cut = view(1, b"a", b"z", keys(b"a", b"d"))
    manifest = Manifest(tree=tree(runs=[run(0, cut, view(2, b"p", b"z"))]))
    (projected,) = project(manifest, keys(b"b", b"q")).tree.compacted
    assert visible(projected.ssts) == [(1, keys(b"b", b"d")), (2, keys(b"p", b"q"))]


def test_an_exclusive_start_is_stored_as_the_next_key() -> None:
    manifest = Manifest(tree=tree([view(1, b"a", b"z")]))
    (projected,) = project(manifest, after(b"c", b"f")).tree.l0
    assert projected.visible_range == keys(b"c\0", b"f")


def test_an_empty_range_leaves_nothing_and_no_range_changes_nothing() -> None:
    manifest = Manifest(
        tree=replace(tree([view(1, b"a", b"z")]), last_compacted_l0_sst_view_id=ulid(9)),
        external_dbs=(external("parent", 5, 1),),
    )
    assert project(manifest, None) is manifest
    nothing = project(manifest, keys(b"m", b"m"))
    assert nothing.tree == Tree()
    assert nothing.external_dbs == ()


def test_watermarks_stay_in_trees_that_stay() -> None:
    manifest = Manifest(tree=replace(tree([view(1, b"a", b"z")]), last_compacted_l0_sst_view_id=ulid(9)))
    assert project(manifest, H_TO_O).tree.last_compacted_l0_sst_view_id == ulid(9)


def test_external_ssts_shrink_and_entries_without_any_go() -> None:
    manifest = Manifest(
        tree=tree([view(1, b"a", b"c"), view(2, b"i", b"j"), view(3, b"k", b"p")]),
        external_dbs=(external("left", 5, 1), external("both", 6, 3, 2)),
    )
    assert project(manifest, H_TO_O).external_dbs == (external("both", 6, 3, 2),)


def test_segments_are_filtered_and_cut() -> None:
    manifest = Manifest(
        segment_extractor_name="first",
        segments=(
            Segment(prefix=b"a", tree=tree([view(1, b"aa", b"az")])),
            Segment(prefix=b"b", tree=tree([view(2, b"ba", b"bz")])),
            Segment(prefix=b"c", tree=replace(Tree(), last_compacted_l0_sst_view_id=ulid(9))),
            Segment(prefix=b"d", tree=tree([view(4, b"da", b"dz")])),
        ),
    )
    projected = project(
        manifest,
        keys(b"ac", None),
        segments=lambda prefix: prefix != b"d",
        segment_ranges=lambda prefix: keys(None, prefix + b"m") if prefix else EVERYTHING,
    )
    assert [(each.prefix, visible(each.tree.l0)) for each in projected.segments] == [
        (b"a", [(1, keys(b"ac", b"am"))]),
        (b"b", [(2, keys(b"ba", b"bm"))]),
    ]


@pytest.mark.parametrize("wanted", [keys(b"b", b"b"), keys(b"a", b"c"), keys(b"b", b"d")])
def test_ranges_of_segments_stay_inside(wanted: KeyRange) -> None:
    manifest = Manifest(segments=(Segment(prefix=b"b", tree=tree([view(1, b"ba", b"bz")])),))
    with pytest.raises(InvalidProjection):
        project(manifest, None, segment_ranges=lambda prefix: wanted if prefix else EVERYTHING)


@given(databases(), key_ranges(), key_ranges())
def test_exactly_the_rows_inside_are_left(
    database: tuple[Manifest, Contents], first: KeyRange, second: KeyRange
) -> None:
    manifest, contents = database
    once = project(manifest, first)
    twice = project(once, second)
    for key in KEYS:
        rows = versions(manifest, contents, key)
        assert versions(once, contents, key) == (rows if first.contains(key) else [])
        assert versions(twice, contents, key) == (rows if first.contains(key) and second.contains(key) else [])


@given(databases(), key_ranges(), key_ranges())
def test_ranges_only_shrink(database: tuple[Manifest, Contents], first: KeyRange, second: KeyRange) -> None:
    manifest, _ = database
    before = project(manifest, first)
    shown = {(view.id, run_id): view for run_id, view in _placed(before)}
    for run_id, narrowed in _placed(project(before, second)):
        assert is_within(narrowed.effective_range, shown[narrowed.id, run_id].effective_range)
        assert is_within(narrowed.visible_range or EVERYTHING, shown[narrowed.id, run_id].visible_range or EVERYTHING)
        assert not narrowed.effective_range.is_empty


def _placed(manifest: Manifest):  # type: ignore[no-untyped-def]
    for shown in manifest.tree.l0:
        yield None, shown
    for each in manifest.tree.compacted:
        for shown in each.ssts:
            yield each.id, shown
