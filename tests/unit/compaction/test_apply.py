"""The tree after a finished compaction: its runs, remaining L0s and watermark (docs/reference/protocol.md 6.8)."""

import pytest

from shale.compaction.apply import with_run, without_drained
from shale.types import RunId, SortedRun, SstView, Tree, Ulid
from tests.unit.compactor.values import drain, manifest, run, spec, sst, tree, view

OUTPUT = (view(30), view(31))


def output(run_id: int) -> SortedRun:
    return SortedRun(id=RunId(run_id), ssts=OUTPUT)


@pytest.mark.parametrize(
    ("runs", "what", "compacted"),
    [
        pytest.param((), spec((2, 1), to=0), (output(0),), id="the first run"),
        pytest.param((3, 1), spec((2, 1), to=4), (output(4), run(3), run(1)), id="a new run"),
        pytest.param((5, 3, 1), spec(runs=(3,), to=3), (run(5), output(3), run(1)), id="a rewrite"),
        pytest.param((5, 3, 1), spec(runs=(5, 3), to=3), (output(3), run(1)), id="into the older one"),
        pytest.param((5, 3, 1), spec(runs=(3, 1), to=1), (run(5), output(1)), id="into the oldest"),
        pytest.param((5, 3, 1), spec((2, 1), (5, 3, 1), to=1), (output(1),), id="everything"),
    ],
)
def test_the_result_takes_the_place_of_its_sources(runs, what, compacted):
    before = tree((2, 1), runs)
    after = with_run(manifest(before), what, OUTPUT)
    assert after.tree.compacted == compacted
    if not what.l0_view_ids:
        assert after == manifest(Tree(l0=before.l0, compacted=compacted)), "L0s and watermark stay"


def test_the_watermark_is_the_newest_consumed_l0():
    """View and SST have ids of their own after a clone."""
    l0 = tuple(SstView(id=Ulid(view_id), sst=sst(ms)) for view_id, ms in ((14, 4), (13, 3), (12, 2)))
    what = spec().__class__(l0_view_ids=(l0[1].id, l0[2].id), destination=RunId(0))
    after = with_run(manifest(Tree(l0=l0)), what, OUTPUT).tree
    assert after.l0 == l0[:1]
    assert (after.last_compacted_l0_sst_view_id, after.last_compacted_l0_sst_id) == (Ulid(13), l0[1].sst.id)


def test_only_the_tree_of_the_spec_changes():
    before = manifest(tree((2, 1), (3,)), a=tree((12,), (8, 6)), b=tree((22,), (9,)))
    after = with_run(before, spec(runs=(8, 6), to=6, segment=b"a"), OUTPUT)
    assert (after.tree, after.tree_of(b"b")) == (before.tree, before.tree_of(b"b"))
    assert after.tree_of(b"a") == Tree(l0=(view(12),), compacted=(output(6),))


def test_a_tree_that_lists_a_run_twice_is_not_written():
    with pytest.raises(AssertionError, match=r"runs \[3, 3, 1\] do not descend"):
        with_run(manifest(tree((), (3, 3, 1))), spec(runs=(1,), to=1), OUTPUT)


@pytest.mark.parametrize(
    ("what", "left"),
    [
        pytest.param(drain(b"a", (), (6,)), tree((12, 11), (8,)), id="the oldest run"),
        pytest.param(
            drain(b"a", (11,), (8, 6)),
            Tree(l0=(view(12),), last_compacted_l0_sst_view_id=view(11).id, last_compacted_l0_sst_id=sst(11).id),
            id="an L0 and all runs",
        ),
        pytest.param(
            drain(b"a", (12, 11), (8, 6)),
            Tree(last_compacted_l0_sst_view_id=view(12).id, last_compacted_l0_sst_id=sst(12).id),
            id="everything; the segment stays",
        ),
    ],
)
def test_a_drain_removes_its_sources(what, left):
    before = manifest(tree((2,), (6,)), a=tree((12, 11), (8, 6)))
    assert without_drained(before, what) == manifest(tree((2,), (6,)), a=left)
