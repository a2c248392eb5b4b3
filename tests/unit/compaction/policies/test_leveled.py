"""The exact picks of the leveled policy: levels are sizes, here 100, 1,000, 10,000 … bytes."""

import pytest

from shale.compaction.policies.leveled import Leveled
from shale.errors import InvalidRequestError
from shale.types import Tree
from tests.unit.compactor.values import S, compactions, entry, manifest, spec, tree, view

POLICY = Leveled(level_base_bytes=100, level_size_multiplier=10.0)
L0 = (104, 103, 102, 101)


@pytest.mark.parametrize(
    ("size", "level"), [(0, 1), (100, 1), (101, 2), (1_000, 2), (1_001, 3), (10_001, 4), (2**60, 18)]
)
def test_levels(size, level):
    assert POLICY.level_of(size) == level


@pytest.mark.parametrize(
    ("l0", "sizes", "picked"),
    [
        pytest.param(L0[1:], (), [], id="three L0s wait"),
        pytest.param(L0, (), [spec(L0, to=0)], id="four become a run"),
        pytest.param(tuple(range(112, 100, -1)), (), [spec(tuple(range(108, 100, -1)), to=0)], id="the oldest eight"),
        pytest.param(L0, (100,), [spec(L0, (0,), to=0)], id="together with a run of level 1"),
        pytest.param(L0, (101,), [spec(L0, to=1)], id="a run of level 2 is left alone"),
        pytest.param(L0, (100, 900), [spec(L0, (1,), to=1)], id="never deeper at once"),
        pytest.param((), (100, 1_000, 10_000), [], id="in shape"),
        pytest.param((), (101, 1_000, 10_000), [spec(runs=(2, 1, 0), to=0)], id="grown out, and the sum as well"),
        pytest.param((), (101, 800, 10_000), [spec(runs=(2, 1), to=1)], id="grown out, and the sum fits"),
        pytest.param((), (50, 50), [spec(runs=(1, 0), to=0)], id="two of the first level"),
        pytest.param((), (5_000, 50, 20_000), [spec(runs=(2, 1), to=1)], id="a small run below a large one"),
        pytest.param((), (50, 500, 0, 5_000), [spec(runs=(2, 1), to=1)], id="a run without rows goes"),
        pytest.param(
            (), (50,) * 10, [spec(runs=tuple(range(7, -1, -1)), to=0), spec(runs=(9, 8), to=8)], id="eight at most"
        ),
    ],
)
def test_picks(l0, sizes, picked):
    state = manifest(tree(l0, tuple(range(len(sizes) - 1, -1, -1)), sizes))
    assert list(POLICY.plan(state, compactions())) == picked


@pytest.mark.parametrize(
    ("sizes", "picked"),
    [
        pytest.param((50,), [], id="one run"),
        pytest.param((50, 101), [], id="on its own level"),
        pytest.param((50, 500, 501, 50_000), [spec(runs=(2, 1), to=1)], id="a later start"),
        pytest.param((50, 500, 500, 1_001), [spec(runs=(2, 1), to=1)], id="the sum fits its level"),
        pytest.param((50, 500, 501, 1_001), [spec(runs=(2, 1, 0), to=0)], id="the sum does not"),
        pytest.param((50, 101, 60, 40), [spec(runs=(2, 1, 0), to=0)], id="small runs below a larger one"),
    ],
)
def test_cascades(sizes, picked):
    state = manifest(tree((), tuple(range(len(sizes) - 1, -1, -1)), sizes))
    assert list(POLICY.plan(state, compactions())) == picked


def test_a_cascade_ends_at_a_run_in_use():
    state = manifest(tree((), (4, 3, 2, 1, 0), (50,) * 5))
    running = entry(50, spec(runs=(2,), to=2), S.RUNNING)
    assert list(POLICY.plan(state, compactions(running))) == [spec(runs=(4, 3), to=3), spec(runs=(1, 0), to=0)]


@pytest.mark.parametrize(
    ("sizes", "waits"),
    [
        pytest.param((150, 150, 150, 150, 150), False, id="five runs on level 2 are three too many"),
        pytest.param((150, 150, 150, 150, 150, 150), True, id="six are four too many"),
        pytest.param((50, 150, 150, 150, 150, 150), True, id="although the newest one is in shape"),
        pytest.param((150, 150, 150, 150, 150, 250), True, id="1,000 bytes are still level 2"),
        pytest.param((150, 150, 150, 150, 150, 251), False, id="with 1,001 bytes there are three levels"),
        pytest.param((150, 151, 1_001, 10_001, 100_001, 10**6, 10**7, 10**8), False, id="deep enough"),
        pytest.param((101, 1_001, 10_001, 100_001, 1_000_001, 10_000_001), False, id="in shape"),
    ],
)
def test_l0s_wait_while_runs_are_too_many_for_their_levels(sizes, waits):
    state = manifest(tree(L0, tuple(range(len(sizes) - 1, -1, -1)), sizes))
    first = next(iter(POLICY.plan(state, compactions())))
    assert (not first.l0_view_ids) is waits


@pytest.mark.parametrize(
    ("sizes", "picked"),
    [
        pytest.param((100, 400, 1_000), [], id="half of the oldest is allowed"),
        pytest.param((100, 401, 1_000), [spec(runs=(2, 1, 0), to=0)], id="more is not"),
        pytest.param((50, 0), [spec(runs=(1, 0), to=0)], id="an oldest run without rows goes"),
        pytest.param((), [], id="no runs"),
        pytest.param((1_000,), [], id="one run"),
        pytest.param(
            (100,) * 10, [spec(runs=tuple(range(7, -1, -1)), to=0), spec(runs=(9, 8), to=8)], id="eight at most"
        ),
    ],
)
def test_all_runs_are_merged_before_the_newer_ones_are_large(sizes, picked):
    policy = Leveled(level_base_bytes=100, level_size_multiplier=2.0, max_space_amplification=1.5)
    state = manifest(tree((), tuple(range(len(sizes) - 1, -1, -1)), sizes))
    assert list(policy.plan(state, compactions())) == picked


def test_runs_that_are_being_merged_are_left_out_of_the_merge_of_all():
    policy = Leveled(level_base_bytes=100, level_size_multiplier=2.0, max_space_amplification=1.5)
    state = manifest(tree((), (3, 2, 1, 0), (900, 90, 90, 1_000)))
    newest = entry(50, spec(runs=(3, 2), to=2), S.RUNNING)
    assert list(policy.plan(state, compactions(newest))) == [spec(runs=(1, 0), to=0)]
    oldest = entry(50, spec(runs=(1, 0), to=0), S.RUNNING)
    assert list(policy.plan(state, compactions(oldest))) == [spec(runs=(3, 2), to=2)]


def test_l0s_open_a_new_run_while_the_newest_is_being_merged():
    state = manifest(tree(L0, (2, 1), (50, 900)))
    running = entry(50, spec(runs=(2, 1), to=1), S.RUNNING)
    assert list(POLICY.plan(state, compactions(running))) == [spec(L0, to=3)]


def test_one_merge_of_l0s_per_tree():
    state = manifest(tree((108, 107, 106, 105, *L0)))
    running = entry(50, spec(L0, to=0), S.SUBMITTED)
    assert list(POLICY.plan(state, compactions(running))) == []


def test_l0s_wait_while_too_many_runs_are_being_merged():
    """Six runs on two levels are four too many; in the target shape, they would not be."""
    crowded = manifest(tree(L0, (5, 4, 3, 2, 1, 0), (101, 101, 101, 101, 101, 101)))
    running = entry(50, spec(runs=(5, 4, 3, 2, 1, 0), to=0), S.RUNNING)
    assert list(POLICY.plan(crowded, compactions(running))) == []
    deep = manifest(tree(L0, (5, 4, 3, 2, 1, 0), (101, 1_001, 10_001, 100_001, 1_000_001, 10_000_001)))
    assert list(POLICY.plan(deep, compactions())) == [spec(L0, to=6)]


def test_a_tree_with_duplicate_l0s_is_left_alone():
    doubled = Tree(l0=(view(4), view(3), view(2), view(2)))
    assert list(POLICY.plan(manifest(doubled), compactions())) == []


def test_all_mistakes_in_the_options_are_told_at_once():
    with pytest.raises(InvalidRequestError) as error:
        Leveled(
            max_compaction_sources=1,
            level_base_bytes=0,
            level_size_multiplier=1.5,
            max_extra_runs=0,
            max_space_amplification=1,
        )
    fewest = {"min_compaction_sources": 2, "max_compaction_sources": 2}
    for bound in ({"level_size_multiplier": 2.0}, {"max_space_amplification": 1.1}, {"max_extra_runs": 1}, fewest):
        Leveled(**bound)
    for named in (
        "max_compaction_sources",
        "level_base_bytes",
        "level_size_multiplier",
        "max_extra_runs",
        "max_space_amplification",
    ):
        assert named in str(error.value)
