"""Promotion of the L0s of a union that SlateDB has made (docs/reference/protocol.md 11.3)."""

from dataclasses import replace

from hypothesis import given

from shale.clones.projection import project
from shale.clones.promote_l0 import duplicated, promote_l0
from shale.protocol.rebase import merge_trees
from shale.types import Compaction, Compactions, Manifest, RunId, Segment, SstView, TieredSpec
from tests.unit.clones.databases import KEYS, databases
from tests.unit.clones.values import Contents, keys, run, tree, ulid, versions, view, visible


def united_by_slatedb(manifest: Manifest, cut: bytes) -> Manifest:
    """Concatenate two halves; views and SSTs occur twice."""
    left, right = project(manifest, keys(None, cut)).tree, project(manifest, keys(cut, None)).tree
    runs = (*left.compacted, *right.compacted)
    renumbered = (run(len(runs) - 1 - index, *each.ssts) for index, each in enumerate(runs))
    return replace(manifest, tree=tree((*left.l0, *right.l0), renumbered))


def test_the_whole_list_becomes_runs_above_all_others() -> None:
    whole = Manifest(tree=tree([view(3, b"a", b"y"), view(2, b"a", b"y")], [run(6, view(1, b"a", b"y"))]))
    spec = TieredSpec(l0_view_ids=(), sorted_runs=(RunId(1),), destination=RunId(9))
    promoted = promote_l0(united_by_slatedb(whole, b"m"), Compactions(entries=(Compaction(id=ulid(9), spec=spec),)))
    assert promoted is not None
    assert [(each.id, visible(each.ssts)[0][0]) for each in promoted.tree.compacted] == [
        (13, 3),
        (12, 2),
        (11, 3),
        (10, 2),
        (1, 1),
        (0, 1),
    ]
    assert promoted.tree.l0 == ()
    assert promoted.tree.last_compacted_l0_sst_view_id == ulid(3)
    assert promoted.tree.last_compacted_l0_sst_id == ulid(3)


def test_only_trees_with_duplicates_are_touched() -> None:
    twice = tree([view(2, b"ba", b"bc"), view(2, b"bd", b"be")])
    once = tree([view(1, b"aa", b"ab")], [run(4, view(9, b"aa", b"ac"))])
    manifest = Manifest(segments=(Segment(prefix=b"a", tree=once), Segment(prefix=b"b", tree=twice)))
    promoted = promote_l0(manifest, Compactions())
    assert promoted is not None
    assert promoted.segments[0].tree is once
    assert [each.id for each in promoted.segments[1].tree.compacted] == [6, 5]
    assert promote_l0(promoted, Compactions()) is None


def test_a_view_of_the_same_sst_under_another_id_is_a_duplicate() -> None:
    shown = view(1, b"a", b"z")
    assert duplicated(tree([shown, SstView(id=ulid(2), sst=shown.sst)]))
    assert duplicated(tree([shown, replace(view(3, b"a", b"b"), id=shown.id)]))
    assert not duplicated(tree([shown, view(2, b"a", b"z")]))


@given(databases())
def test_no_row_changes_and_a_flush_meanwhile_stays(database: tuple[Manifest, Contents]) -> None:
    manifest, contents = database
    united = united_by_slatedb(manifest, b"d")
    promoted = promote_l0(united, Compactions())
    if promoted is None:
        assert not duplicated(united.tree)
        return
    for key in KEYS:
        assert versions(promoted, contents, key) == versions(united, contents, key) == versions(manifest, contents, key)
    flushed = view(900, b"a", b"h")
    merged = merge_trees(writer=tree((flushed, *united.tree.l0)), compactor=promoted.tree)
    assert merged.l0 == (flushed,)
