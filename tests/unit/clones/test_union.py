"""Unions: the rules of docs/reference/protocol.md 11.2, and rows as a model."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.clones.clone_manifest import Source, cloned
from shale.clones.projection import project
from shale.clones.promote_l0 import duplicated
from shale.clones.union import unite
from shale.errors import InvalidDbState, InvalidUnion, InvalidUnionSetEmpty
from shale.types import Manifest, Segment, Seq, Tree, Ulid
from tests.unit.clones.databases import KEYS, databases
from tests.unit.clones.values import (
    Contents,
    Uuids,
    closed,
    external,
    keys,
    run,
    source,
    tree,
    ulid,
    uuid,
    versions,
    view,
    visible,
)

LEFT, RIGHT = keys(b"a", b"m"), keys(b"m", b"z")
EIGHT = tuple(view(ms, b"a", b"y") for ms in range(8, 0, -1))


def split(manifest: Manifest, cut: bytes, *, number: int = 0) -> list[Source]:
    """Return two clones of the database at ``db``, one on either side of a key, as ``cloned`` makes them."""
    uuids = Uuids(10_000 * (number + 1))
    sources = []
    for name, side in (("left", keys(None, cut)), ("right", keys(cut, None))):
        whole = source(f"db{number}", project(manifest, side), checkpoint=number + 1)
        sources.append(source(f"{name}{number}", cloned(whole, uuids), checkpoint=500 + number, named=side))
    return sources


def test_trees_are_put_together_and_runs_renumbered() -> None:
    left = Manifest(tree=tree([view(3, b"a", b"c")], [run(7, view(2, b"a", b"b"))]), last_l0_seq=Seq(50))
    right = Manifest(
        tree=tree([view(6, b"m", b"o"), view(5, b"n", b"o")], [run(9, view(4, b"m", b"p"))]),
        writer_epoch=3,  # type: ignore[arg-type]
        last_l0_seq=Seq(40),
    )
    united = unite([source("r", right, checkpoint=2), source("l", left)], Uuids())
    assert visible(united.tree.l0) == [(6, None), (5, None), (3, None)]
    assert [(each.id, visible(each.ssts)) for each in united.tree.compacted] == [(1, [(2, None)]), (0, [(4, None)])]
    assert united == Manifest(
        initialized=False, tree=united.tree, last_l0_seq=Seq(50), external_dbs=united.external_dbs
    )
    assert [(entry.path, entry.source_checkpoint_id, entry.sst_ids) for entry in united.external_dbs] == [
        ("l", uuid(1), (ulid(2), ulid(3))),
        ("r", uuid(2), (ulid(4), ulid(5), ulid(6))),
    ]
    assert len({entry.final_checkpoint_id for entry in united.external_dbs}) == 2


@pytest.mark.parametrize("count", range(1, 9))
def test_halves_of_l0s_become_whole_again(count: int) -> None:
    whole = Manifest(tree=tree(EIGHT[:count], [run(0, view(100, b"a", b"k"), view(101, b"l", b"y"))]))
    united = unite(split(whole, b"m"), Uuids())
    assert united.tree.l0 == whole.tree.l0
    assert [visible(each.ssts) for each in united.tree.compacted] == [
        [(100, keys(b"a", b"l")), (101, keys(b"l", b"m"))],
        [(101, closed(b"m", b"y"))],
    ]


def test_l0s_with_a_gap_between_their_halves_are_promoted() -> None:
    sources = [
        source(name, project(Manifest(tree=tree(EIGHT[:2], [run(5, view(100, b"a", b"y"))])), side))
        for name, side in (("left", keys(b"a", b"c")), ("right", keys(b"m", b"z")))
    ]
    sources = [
        replace(each, manifest=replace(each.manifest, external_dbs=(external("db", 9, 7, 8, 100),))) for each in sources
    ]
    united = unite(sources, Uuids(), allow_gaps=True)
    assert united.tree.l0 == ()
    assert [(each.id, visible(each.ssts)) for each in united.tree.compacted] == [
        (5, [(8, keys(b"a", b"c"))]),
        (4, [(7, keys(b"a", b"c"))]),
        (3, [(100, keys(b"a", b"c"))]),
        (2, [(8, closed(b"m", b"y"))]),
        (1, [(7, closed(b"m", b"y"))]),
        (0, [(100, closed(b"m", b"y"))]),
    ]


def test_sources_that_contradict_each_other_are_promoted() -> None:
    sources = split(Manifest(tree=tree(EIGHT[:2])), b"m")
    turned = replace(sources[1].manifest, tree=tree(reversed(sources[1].manifest.tree.l0)))
    united = unite([sources[0], replace(sources[1], manifest=turned)], Uuids())
    assert [visible(each.ssts)[0][0] for each in united.tree.compacted] == [8, 7, 7, 8]
    assert united.tree.l0 == ()


def test_compacting_joins_similar_runs_and_views_at_the_seam() -> None:
    whole = Manifest(tree=tree(runs=[run(4, view(5, b"a", b"y")), run(1, view(3, b"a", b"d"), view(4, b"e", b"y"))]))
    united = unite(split(whole, b"m"), Uuids(), compact=True)
    assert [(each.id, visible(each.ssts)) for each in united.tree.compacted] == [
        (1, [(5, None)]),
        (0, [(3, keys(b"a", b"e")), (4, None)]),
    ]


def segmented(**trees: Tree) -> Manifest:
    segments = tuple(Segment(prefix=name.encode(), tree=trees[name]) for name in sorted(trees))
    return Manifest(segment_extractor_name="by", segments=segments)


def test_segments_are_united_prefix_by_prefix() -> None:
    one = segmented(a=tree([view(1, b"aa", b"ac")]), c=tree([view(2, b"ca", b"cc")]), e=Tree())
    other = segmented(a=tree([view(3, b"ad", b"ae")]), b=tree(runs=[run(3, view(4, b"ba", b"bz"))]))
    united = unite([source("x", one), source("y", other, checkpoint=2)], Uuids())
    assert [(each.prefix, visible(each.tree.l0)) for each in united.segments] == [
        (b"a", [(3, None), (1, None)]),
        (b"b", []),
        (b"c", [(2, None)]),
    ]
    assert united.segment_extractor_name == "by"
    assert united.tree == Tree()


BAD: dict[str, Sequence[Source]] = {
    "overlap": [
        source("l", Manifest(tree=tree([view(1, b"a", b"m")]))),
        source("r", Manifest(tree=tree([view(2, b"m", b"z")]))),
    ],
    "extractor": [
        source("l", segmented(a=tree([view(1, b"aa", b"ab")]))),
        source("r", Manifest(tree=tree([view(2, b"m", b"z")]))),
    ],
    "inside segment": [
        source("l", segmented(a=tree([view(1, b"aa", b"ab")]))),
        source("r", segmented(ab=tree([view(2, b"abc", b"abd")]))),
    ],
    "overlap in segment": [
        source("l", segmented(a=tree([view(1, b"aa", b"ac")]))),
        source("r", segmented(a=tree([view(2, b"ab", b"ad")]))),
    ],
    "outside of every segment": [
        source("l", replace(segmented(), tree=tree([view(1, b"aa", b"ac")]))),
        source("r", segmented(a=tree([view(2, b"ab", b"ad")]))),
    ],
    "has segments": [
        source("l", replace(segmented(a=tree([view(1, b"aa", b"ac")])), segment_extractor_name=None)),
        source("r", Manifest(tree=tree([view(2, b"m", b"z")]))),
    ],
    "collision": [
        source("l", Manifest(tree=tree([view(1, b"a", b"c")]))),
        source("r", Manifest(tree=tree([view(1, b"m", b"z")]))),
    ],
    "not adjacent": [
        source("l", Manifest(tree=tree([view(1, b"a", b"c")])), named=keys(b"a", b"d")),
        source("r", Manifest(tree=tree([view(2, b"m", b"z")])), named=keys(b"m", None)),
    ],
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_united(what: str) -> None:
    with pytest.raises(InvalidUnion, match=what.split(" in ", maxsplit=1)[0]):
        unite(BAD[what], Uuids())


def test_gaps_may_be_allowed_and_a_union_needs_sources() -> None:
    assert len(unite(BAD["not adjacent"], Uuids(), allow_gaps=True).tree.l0) == 2
    with pytest.raises(InvalidUnionSetEmpty):
        unite([], Uuids())


def test_sources_without_ssts_give_only_their_last_seq() -> None:
    empty = Manifest(last_l0_seq=Seq(99))
    full = Manifest(tree=tree([view(1, b"a", b"b")]), last_l0_seq=Seq(5))
    united = unite([source("e", empty), source("f", full, checkpoint=2)], Uuids())
    assert united.last_l0_seq == 99
    assert [entry.path for entry in united.external_dbs] == ["f"]


def test_borrowed_ssts_are_pinned_through_the_pins_of_the_source() -> None:
    borrowing = Manifest(tree=tree([view(1, b"a", b"b"), view(2, b"a", b"b")]), external_dbs=(external("old", 77, 1),))
    united = unite([source("b", borrowing), source("r", Manifest(tree=tree([view(3, b"m", b"z")])))], Uuids())
    assert [(entry.path, entry.source_checkpoint_id, entry.sst_ids) for entry in united.external_dbs] == [
        ("b", uuid(1), (ulid(2),)),
        ("old", uuid(77), (ulid(1),)),
        ("r", uuid(1), (ulid(3),)),
    ]
    unpinned = replace(borrowing, external_dbs=(external("old", None, 1),))
    with pytest.raises(InvalidDbState):
        unite([source("b", unpinned), source("r", Manifest())], Uuids())


def test_equal_borrowings_are_one_and_the_callers_checkpoint_is_kept() -> None:
    p = Manifest(tree=tree([view(1, b"a", b"y")]))
    side = replace(project(p, RIGHT), external_dbs=(external("p", 3, 1),))
    united = unite([source("p", project(p, LEFT), checkpoint=900), source("q", side, checkpoint=901)], Uuids())
    assert [(entry.path, entry.source_checkpoint_id) for entry in united.external_dbs] == [("p", uuid(900))]
    # A part of what another entry pins needs none of its own.
    more = Manifest(tree=tree([view(1, b"m", b"y"), view(2, b"m", b"y")]), external_dbs=(external("p", 5, 1, 2),))
    united = unite(
        [source("l", replace(project(p, LEFT), external_dbs=(external("p", 3, 1),))), source("r", more)], Uuids()
    )
    assert [(entry.source_checkpoint_id, entry.sst_ids) for entry in united.external_dbs] == [
        (uuid(5), (ulid(1), ulid(2)))
    ]
    sides = [
        source(name, replace(project(p, half), external_dbs=(external("p", final, 1),)), checkpoint=900)
        for name, half, final in (("l", LEFT, 44), ("r", RIGHT, 33))
    ]
    assert [entry.source_checkpoint_id for entry in unite(sides, Uuids()).external_dbs] == [uuid(33)]


cut_keys = st.sampled_from([*KEYS[1:], b"cc"])


@given(databases(), cut_keys, st.booleans(), st.booleans())
def test_split_and_union_show_the_same_rows(
    database: tuple[Manifest, Contents], cut: bytes, compact: bool, turned: bool
) -> None:
    manifest, contents = database
    halves = split(manifest, cut)
    united = unite(halves[::-1] if turned else halves, Uuids(), compact=compact)
    _check(united, manifest, contents)


@given(databases(), st.lists(cut_keys, min_size=10, max_size=10), st.booleans())
def test_ten_round_trips_stay_small(database: tuple[Manifest, Contents], cuts: list[bytes], compact: bool) -> None:
    manifest, contents = database
    current = manifest
    for number, cut in enumerate(cuts):
        current = unite(split(current, cut, number=number), Uuids(number * 100), compact=compact)
        _check(current, manifest, contents)
    owned = [entry for entry in current.external_dbs if entry.path == "db0"]
    assert len(current.external_dbs) == len(owned)
    assert len(owned) <= len(contents)


@given(databases(), cut_keys, st.sampled_from(KEYS), st.booleans())
def test_independent_databases_with_gaps(
    database: tuple[Manifest, Contents], cut: bytes, gap: bytes, compact: bool
) -> None:
    manifest, contents = database
    low, high = sorted((cut, gap))
    left = source("l", project(manifest, keys(None, low)))
    right = source("r", project(manifest, keys(high, None)))
    left, right = (_borrowing(each) for each in (left, right))
    united = unite([left, right], Uuids(), compact=compact)
    for key in KEYS:
        assert versions(united, contents, key) == ([] if low <= key < high else versions(manifest, contents, key))
    assert not duplicated(united.tree)


def _borrowing(shard: Source) -> Source:
    ssts = sorted(shard.manifest.ssts())
    entry = external("db", 5, *(sst_id.ms for sst_id in ssts))
    return replace(shard, manifest=replace(shard.manifest, external_dbs=(entry,) if ssts else ()))


def _check(united: Manifest, manifest: Manifest, contents: Contents) -> None:
    for key in KEYS:
        assert versions(united, contents, key) == versions(manifest, contents, key)
    assert not duplicated(united.tree)
    run_ids = [each.id for each in united.tree.compacted]
    assert run_ids == sorted(set(run_ids), reverse=True)
    places: dict[Ulid, str] = {}
    for entry in united.external_dbs:
        assert len(set(entry.sst_ids)) == len(entry.sst_ids) > 0
        for sst_id in entry.sst_ids:
            assert places.setdefault(sst_id, entry.path) == entry.path
    assert united.ssts().keys() == places.keys()
    finals = [entry.final_checkpoint_id for entry in united.external_dbs]
    assert len(set(finals)) == len(finals)
