"""Sources, destinations and sizes of specs, and how messages name them."""

import pytest

from shale.compaction.specs import (
    L0Source,
    SortedRunSource,
    describe,
    destination_of,
    fresh_run_id,
    has_duplicate_l0,
    inputs_of,
    max_run_id,
    name_of_segment,
    names_of,
    next_run_id,
    order_of,
    size_estimate_bytes,
    source_views,
    sources_of,
    touched_by,
    with_tree,
)
from shale.types import RunId, SortedRun, SstView, Tree, Ulid
from tests.unit.compactor.values import S, compactions, drain, entry, manifest, spec, sst, tree, ulid, view

LOG = b"log"
STATE = manifest(
    Tree(l0=(view(4, 1), view(3, 2)), compacted=(SortedRun(id=RunId(7), ssts=(view(30, 4), view(31, 8))),)),
    log=Tree(l0=(view(3, 16),), compacted=tree((), (5, 2), (32, 64)).compacted),
)


def test_sources_and_destination():
    merged, drained = spec((4, 3), (7,), to=7), drain(LOG, (3,), (5, 2))
    l0s = (L0Source(b"", ulid(4)), L0Source(b"", ulid(3)))
    assert sources_of(merged) == order_of(b"", STATE.tree) == (*l0s, SortedRunSource(RunId(7)))
    assert (destination_of(merged), destination_of(drained)) == (7, None)
    assert touched_by(merged) == {*sources_of(merged)}
    assert touched_by(spec((4,), to=9)) == {l0s[0], SortedRunSource(RunId(9))}
    assert touched_by(drained) == {*order_of(LOG, STATE.tree_of(LOG))} == {*sources_of(drained)}


@pytest.mark.parametrize(
    ("what", "size", "views"),
    [
        pytest.param(spec((4, 3), (7,), to=7), 15, (view(4, 1), view(3, 2), view(30, 4), view(31, 8)), id="all"),
        pytest.param(spec((3,), to=8), 2, (view(3, 2),), id="one L0"),
        pytest.param(spec(runs=(7,), to=7), 12, (view(30, 4), view(31, 8)), id="one run"),
        pytest.param(drain(LOG, (3,), (2,)), 80, (view(3, 16), view(1002, 64)), id="of a segment"),
        pytest.param(spec((3, 2), to=8), 2, None, id="an L0 is missing"),
        pytest.param(spec((3,), (5,), to=5), 2, None, id="the run is of another tree"),
        pytest.param(spec((3,), to=8, segment=b"x"), 0, None, id="no such segment"),
    ],
)
def test_sizes_and_inputs(what, size, views):
    assert size_estimate_bytes(STATE, what) == size
    assert inputs_of(STATE, what) == views


def test_views_of_sources_that_are_left():
    assert source_views(STATE.tree, spec((9, 3), (8, 7), to=7)) == (view(3, 2), view(30, 4), view(31, 8))


def test_run_ids_of_trees_and_of_active_compactions():
    assert (max_run_id(STATE.tree), max_run_id(Tree())) == (7, None)
    assert (next_run_id(STATE), next_run_id(manifest()), next_run_id(manifest(a=tree((), (0,))))) == (8, 0, 1)
    others = (
        entry(1, spec((4,), to=9), S.RUNNING),
        entry(2, drain(LOG, (3,)), S.SCHEDULED),
        entry(3, spec((3,), to=20), S.FAILED),
        entry(4, spec(runs=(5, 2), to=2), S.COMPACTED),
    )
    assert fresh_run_id(STATE, compactions(*others)) == 10
    assert fresh_run_id(STATE, compactions(*others[1:])) == 8


@pytest.mark.parametrize(
    ("l0", "is_double"),
    [
        pytest.param((), False, id="no L0s"),
        pytest.param((view(2), view(1)), False, id="two"),
        pytest.param((view(1), view(1)), True, id="a view twice"),
        pytest.param((SstView(id=Ulid(7), sst=sst(1)), SstView(id=Ulid(6), sst=sst(1))), True, id="an SST twice"),
        pytest.param((SstView(id=Ulid(7), sst=sst(1)), SstView(id=Ulid(7), sst=sst(2))), True, id="a view id twice"),
    ],
)
def test_duplicate_l0s(l0, is_double):
    assert has_duplicate_l0(Tree(l0=l0)) is is_double


def runs_named(newest: int, oldest: int) -> list[str]:
    return [f"SR{number}" for number in range(newest, oldest - 1, -1)]


@pytest.mark.parametrize(
    ("count", "names"),
    [
        pytest.param(0, [], id="none"),
        pytest.param(12, runs_named(12, 1), id="twelve are all named"),
        pytest.param(13, [*runs_named(13, 4), "… 2 more …", "SR1"], id="of thirteen the last and the first ten"),
        pytest.param(100, [*runs_named(100, 91), "… 89 more …", "SR1"], id="a hundred"),
    ],
)
def test_long_lists_are_shortened_in_the_middle(count, names):
    assert names_of([SortedRunSource(RunId(number)) for number in range(count, 0, -1)]) == ", ".join(names)


def test_specs_in_log_lines():
    assert describe(spec((4,), (7,), to=7)) == f"[{ulid(4)}, SR7] -> SR7"
    assert describe(spec(runs=(5, 2), to=2, segment=LOG)) == "segment 6c6f67 [SR5, SR2] -> SR2"
    assert describe(drain(LOG, (3,))) == f"segment 6c6f67 [{ulid(3)}] -> drain"
    assert name_of_segment(b"x" * 16) == "78" * 16
    assert name_of_segment(b"x" * 17) == "78" * 16 + "… (17 bytes)"


def test_one_tree_is_replaced():
    assert with_tree(STATE, b"", tree((9,))) == manifest(tree((9,)), log=STATE.tree_of(LOG))
    two = manifest(STATE.tree, log=tree((1,)), other=tree((2,)))
    assert with_tree(two, LOG, Tree()) == manifest(STATE.tree, log=Tree(), other=tree((2,)))
