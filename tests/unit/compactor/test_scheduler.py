"""Fault row F4.26: the exact picks of the size-tiered scheduler (docs/protocol.md 6.7)."""

import pytest

from shale.compaction.size_tiered import SizeTieredOptions, plan_compactions
from shale.types import Tree
from tests.unit.compactor.values import S, compactions, entry, manifest, spec, tree, view

OPTIONS = SizeTieredOptions()


def down(newest: int, oldest: int = 1) -> tuple[int, ...]:
    return tuple(range(newest, oldest - 1, -1))


@pytest.mark.parametrize(
    ("l0_count", "picked"),
    [
        pytest.param(3, [], id="three are not enough"),
        pytest.param(4, [spec(down(4), to=0)], id="four"),
        pytest.param(5, [spec(down(5), to=0)], id="five go together"),
        pytest.param(8, [spec(down(8), to=0)], id="eight"),
        pytest.param(9, [spec(down(8), to=0)], id="of nine the oldest eight"),
        pytest.param(20, [spec(down(8), to=0)], id="of twenty the oldest eight, once"),
    ],
)
def test_l0_picks(l0_count, picked):
    state = manifest(tree(down(l0_count)))
    assert plan_compactions(state, compactions(), OPTIONS) == picked


@pytest.mark.parametrize(
    ("runs", "sizes", "picked"),
    [
        pytest.param((3, 2, 1), (10, 10, 10), [], id="three runs are not enough"),
        pytest.param((3, 2, 1, 0), (10, 10, 10, 10), [spec(runs=(3, 2, 1, 0), to=0)], id="four equal runs"),
        pytest.param((3, 2, 1, 0), (10, 40, 40, 40), [spec(runs=(3, 2, 1, 0), to=0)], id="just within the threshold"),
        pytest.param((3, 2, 1, 0), (10, 41, 41, 41), [], id="just above the threshold"),
        pytest.param((3, 2, 1, 0), (1, 4, 16, 64), [], id="geometric sizes: the minimum stays the first"),
        pytest.param((4, 3, 2, 1, 0), (1, 90, 90, 90, 90), [spec(runs=(3, 2, 1, 0), to=0)], id="a later start"),
        pytest.param((4, 3, 2, 1, 0), (90, 90, 90, 90, 900), [spec(runs=(4, 3, 2, 1), to=1)], id="the big one stays"),
        pytest.param((9, 7, 5, 3), (40, 10, 40, 40), [spec(runs=(9, 7, 5, 3), to=3)], id="the minimum moves down"),
    ],
)
def test_run_picks(runs, sizes, picked):
    state = manifest(tree((), runs, sizes))
    assert plan_compactions(state, compactions(), OPTIONS) == picked


def test_a_long_chain_is_cut_to_its_oldest_runs():
    """With ten equal runs the check of the second prefix meets a full tier behind it, so the pick starts later."""
    state = manifest(tree((), down(9, 0), (10,) * 10))
    (picked,) = plan_compactions(state, compactions(), OPTIONS)
    assert picked.destination == 0
    assert picked.sorted_runs == down(7, 0)


def test_backpressure_holds_l0_back_behind_a_full_tier():
    state = manifest(tree((104, 103, 102, 101), down(7, 0), (100,) * 8))
    assert plan_compactions(state, compactions(), OPTIONS) == [spec(runs=down(7, 0), to=0)]


def test_no_backpressure_when_the_next_run_is_much_larger():
    state = manifest(tree((104, 103, 102, 101), down(7, 0), (1601,) + (1601,) * 7))
    picked = plan_compactions(state, compactions(), OPTIONS)
    assert picked == [spec((104, 103, 102, 101), to=8), spec(runs=down(7, 0), to=0)]


def test_active_sources_are_not_picked_again():
    running = entry(50, spec((4, 3, 2, 1), to=0), S.RUNNING)
    state = manifest(tree(down(8)))
    assert plan_compactions(state, compactions(running), OPTIONS) == []


def test_fresh_destinations_skip_runs_and_active_destinations_of_all_trees():
    running = entry(50, spec((4, 3, 2, 1), to=9, segment=b"a"), S.COMPACTED)
    state = manifest(tree(down(4)), a=tree((14, 13, 12, 11)), b=tree((), (7,)))
    assert plan_compactions(state, compactions(running), OPTIONS) == [
        spec(down(4), to=10),
        spec((14, 13, 12, 11), to=11, segment=b"a"),
    ]


def test_the_tree_with_most_l0s_goes_first_and_capacity_counts_waiting_jobs():
    state = manifest(tree(down(4)), a=tree((29, 28, 27, 26, 25)), b=tree((19, 18, 17, 16)))
    waiting = entry(50, spec(runs=(99,), to=99, segment=b"z"), S.SCHEDULED)
    options = SizeTieredOptions(max_concurrent_compactions=3)
    picked = plan_compactions(state, compactions(waiting), options)
    assert [(pick.segment, pick.destination) for pick in picked] == [(b"a", 100), (b"", 101)]


def test_a_compacted_job_frees_its_slot():
    state = manifest(tree(down(4)))
    options = SizeTieredOptions(max_concurrent_compactions=1)
    other = spec(runs=(99,), to=99, segment=b"z")
    assert plan_compactions(state, compactions(entry(50, other, S.RUNNING)), options) == []
    assert len(plan_compactions(state, compactions(entry(50, other, S.COMPACTED)), options)) == 1


def test_a_tree_with_duplicate_l0s_is_left_alone():
    doubled = Tree(l0=(view(4), view(3), view(2), view(2)))
    assert plan_compactions(manifest(doubled), compactions(), OPTIONS) == []
