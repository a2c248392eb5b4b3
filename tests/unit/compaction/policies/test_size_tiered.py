"""The exact picks of the size-tiered scheduler.

Source: docs/reference/protocol.md 6.7.
"""

import pytest

from shale.compaction.policies.size_tiered import SizeTiered, similar_count
from shale.compaction.policies.tree_plan import Sized
from shale.compaction.specs import SortedRunSource
from shale.errors import InvalidRequestError
from shale.types import RunId, Tree
from tests.unit.compactor.values import S, compactions, entry, manifest, spec, tree, view

pytestmark = pytest.mark.fault("F4.26")

POLICY = SizeTiered()


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
    assert list(POLICY.plan(state, compactions())) == picked


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
        pytest.param((9, 7, 5, 3), (40, 10, 40, 41), [], id="and then counts"),
        pytest.param(down(7, 0), (10,) * 8, [spec(runs=down(7, 0), to=0)], id="eight equal runs"),
        pytest.param(down(4, 0), (1, 4, 16, 64, 256), [], id="a factor of four each"),
        pytest.param(
            down(4, 0), (16, 16, 16, 16, 257), [spec(runs=down(4, 1), to=1)], id="four equal before a big one"
        ),
        pytest.param((3, 2, 1, 0), (0, 0, 0, 0), [spec(runs=(3, 2, 1, 0), to=0)], id="runs without rows"),
        pytest.param((3, 2, 1, 0), (0, 9, 9, 9), [], id="nothing is similar to nothing"),
        pytest.param(
            down(8, 0),
            (1, 4, 4, 4, 4, 4, 4, 4, 16),
            [spec(runs=down(7, 0), to=0)],
            id="a full tier after the first run",
        ),
    ],
)
def test_run_picks(runs, sizes, picked):
    state = manifest(tree((), runs, sizes))
    assert list(POLICY.plan(state, compactions())) == picked


def test_runs_in_use_end_a_chain():
    state = manifest(tree((), down(5, 0), (10,) * 6))
    oldest_but_one = entry(50, spec(runs=(1,), to=1), S.RUNNING)
    assert list(POLICY.plan(state, compactions(oldest_but_one))) == [spec(runs=(5, 4, 3, 2), to=2)]
    third = entry(50, spec(runs=(2,), to=2), S.RUNNING)
    assert list(POLICY.plan(state, compactions(third))) == []


def test_two_runs_are_the_least_of_a_merge():
    """With a minimum of one source, a run would be merged into itself again and again."""
    policy = SizeTiered(min_compaction_sources=1)
    assert list(policy.plan(manifest(tree((1,), (0,), (10**6,))), compactions())) == [spec((1,), to=1)]
    assert list(policy.plan(manifest(tree((), (1, 0))), compactions())) == [spec(runs=(1, 0), to=0)]
    assert list(policy.plan(manifest(tree((), (0,))), compactions())) == []


@pytest.mark.parametrize(
    ("sizes", "start", "count"),
    [
        pytest.param((10,), 0, 1, id="one"),
        pytest.param((10, 15, 15), 0, 3, id="all"),
        pytest.param((10, 16, 1), 0, 1, id="above the threshold"),
        pytest.param((99, 10, 15, 16), 1, 2, id="from a later start"),
        pytest.param((10, 4, 6, 7), 0, 3, id="the smallest so far counts"),
        pytest.param((3, 4, 5), 0, 2, id="the product is rounded down"),
    ],
)
def test_similar_runs(sizes, start, count):
    runs = [Sized(SortedRunSource(RunId(index)), size) for index, size in enumerate(sizes)]
    assert similar_count(runs, start, 1.5) == count


def test_a_long_chain_is_cut_to_its_oldest_runs():
    """With ten equal runs the second prefix is followed by a full tier, so the pick starts later."""
    state = manifest(tree((), down(9, 0), (10,) * 10))
    (picked,) = list(POLICY.plan(state, compactions()))
    assert picked.destination == 0
    assert picked.sorted_runs == down(7, 0)


def test_backpressure_of_a_full_tier_holds_l0_back():
    state = manifest(tree((104, 103, 102, 101), down(7, 0), (100,) * 8))
    assert list(POLICY.plan(state, compactions())) == [spec(runs=down(7, 0), to=0)]


def test_no_backpressure_when_the_next_run_is_much_larger():
    state = manifest(tree((104, 103, 102, 101), down(7, 0), (1601,) + (1601,) * 7))
    picked = list(POLICY.plan(state, compactions()))
    assert picked == [spec((104, 103, 102, 101), to=8), spec(runs=down(7, 0), to=0)]


@pytest.mark.parametrize(
    ("older_runs", "picked"),
    [
        pytest.param((100,) * 7, [spec((104, 103, 102, 101), to=7), spec(runs=down(6, 0), to=0)], id="seven"),
        pytest.param((100,) * 8, [spec(runs=down(7, 0), to=0)], id="eight"),
        pytest.param((100,) * 9, [spec(runs=down(7, 0), to=0)], id="nine: the newest would join a full tier"),
        pytest.param((1600,) + (1600,) * 7, [spec(runs=down(7, 0), to=0)], id="eight, just similar to the result"),
        pytest.param((100,) * 7 + (401,), [spec((104, 103, 102, 101), to=8), spec(runs=down(7, 1), to=1)], id="broken"),
    ],
)
def test_backpressure_counts_the_older_chain(older_runs, picked):
    """Four L0s of 100 bytes, so that a tier begins at 1600."""
    state = manifest(tree((104, 103, 102, 101), down(len(older_runs) - 1, 0), older_runs))
    assert list(POLICY.plan(state, compactions())) == picked


def test_active_sources_are_not_picked_again():
    running = entry(50, spec((4, 3, 2, 1), to=0), S.RUNNING)
    state = manifest(tree(down(8)))
    assert list(POLICY.plan(state, compactions(running))) == []


def test_fresh_destinations_skip_runs_and_active_destinations_of_all_trees():
    running = entry(50, spec((4, 3, 2, 1), to=9, segment=b"a"), S.COMPACTED)
    state = manifest(tree(down(4)), a=tree((14, 13, 12, 11)), b=tree((), (7,)))
    assert list(POLICY.plan(state, compactions(running))) == [
        spec(down(4), to=10),
        spec((14, 13, 12, 11), to=11, segment=b"a"),
    ]


def test_the_tree_with_most_l0s_goes_first_then_the_root():
    state = manifest(tree(down(4)), a=tree((29, 28, 27, 26, 25)), b=tree((19, 18, 17, 16)))
    waiting = entry(50, spec(runs=(99,), to=99, segment=b"z"), S.SCHEDULED)
    picked = list(POLICY.plan(state, compactions(waiting)))
    assert [(pick.segment, pick.destination) for pick in picked] == [(b"a", 100), (b"", 101), (b"b", 102)]


def test_every_tree_gets_its_first_merge_before_any_gets_its_second():
    """A tree with L0s and a full tier needs two merges; the other tree needs one."""
    state = manifest(
        tree((104, 103, 102, 101), down(3, 0), (9000,) * 4), a=tree((), down(14, 10), (10, 10, 10, 10, 99))
    )
    picked = list(POLICY.plan(state, compactions()))
    assert picked == [
        spec((104, 103, 102, 101), to=15),
        spec(runs=down(14, 11), to=11, segment=b"a"),
        spec(runs=down(3, 0), to=0),
    ]


def test_a_tree_with_duplicate_l0s_is_left_alone():
    doubled = Tree(l0=(view(4), view(3), view(2), view(2)))
    assert list(POLICY.plan(manifest(doubled), compactions())) == []


def test_all_mistakes_in_the_options_are_told_at_once():
    with pytest.raises(InvalidRequestError) as error:
        SizeTiered(min_compaction_sources=0, max_compaction_sources=-1, include_size_threshold=0.0)
    for named in ("min_compaction_sources must", "max_compaction_sources -1", "include_size_threshold"):
        assert named in str(error.value)
