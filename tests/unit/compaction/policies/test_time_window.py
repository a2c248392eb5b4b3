"""The exact picks of the time-window policy: windows of a minute, ids that are seconds."""

import math
from dataclasses import replace

import pytest

from shale.compaction.policies.time_window import TimeWindow
from shale.compaction.policies.time_window_ages import run_id_at
from shale.errors import InvalidRequestError
from shale.types import Manifest, RunId, SortedRun, TieredSpec, Tree
from tests.unit.compaction.harness import view_at
from tests.unit.compactor.values import S, compactions, entry

T = 1_700_000_040  # the first second of a minute
POLICY = TimeWindow(window_s=60.0, max_windows=5)
EXPIRING = TimeWindow(window_s=60.0, max_windows=10, default_ttl_s=300.0)


def l0(*seconds: int) -> Tree:
    return Tree(l0=tuple(view_at(T + second, 100) for second in seconds))


def with_runs(tree: Tree, *runs: tuple[int, int], written: int | None = None) -> Tree:
    """Return runs with ids in seconds and with sizes, newest first."""

    def run(second: int, size: int) -> SortedRun:
        when = T + (second if written is None else written)
        return SortedRun(id=RunId(T + second), ssts=(view_at(when, size, second + 1000),) if size else ())

    return replace(tree, compacted=tuple(run(*each) for each in runs))


def at(tree: Tree, now: int) -> Manifest:
    return Manifest(tree=tree, last_l0_clock_tick=(T + now) * 1000)


def merge(l0s: tuple[int, ...] = (), runs: tuple[int, ...] = (), to: int = 0) -> TieredSpec:
    return TieredSpec(
        l0_view_ids=tuple(view_at(T + second, 0).id for second in l0s),
        sorted_runs=tuple(RunId(T + second) for second in runs),
        destination=RunId(T + to),
    )


@pytest.mark.parametrize(
    ("tree", "now", "picked"),
    [
        pytest.param(l0(3, 2, 1), 3, [], id="three L0s wait"),
        pytest.param(l0(4, 3, 2, 1), 4, [merge((4, 3, 2, 1), to=4)], id="the id is the time of the newest"),
        pytest.param(l0(63, 62, 61, 2, 1), 63, [merge((2, 1), to=2)], id="never over the end of a window"),
        pytest.param(l0(61, 2, 1), 61, [merge((2, 1), to=2)], id="the rest of a window that is over"),
        pytest.param(l0(61, 2), 61, [], id="a single one waits for company"),
        pytest.param(with_runs(l0(61, 9), (4, 900)), 61, [merge((9,), to=9)], id="unless its window has a run"),
        pytest.param(
            with_runs(l0(), (9, 50), (7, 50), (5, 50), (3, 50)), 10, [merge((), (9, 7, 5, 3), 3)], id="similar runs"
        ),
        pytest.param(with_runs(l0(), (9, 50), (7, 500), (5, 50), (3, 500)), 10, [], id="runs that are not similar"),
        pytest.param(
            with_runs(l0(), (9, 1), (3, 999)), 60, [merge((), (9, 3), 3)], id="a window that is over: one run"
        ),
        pytest.param(with_runs(l0(), (69, 5), (9, 5)), 70, [], id="windows stay apart"),
        pytest.param(
            with_runs(l0(65, 8), (66, 5), (9, 5), (3, 5)), 70, [merge((8,), to=67)], id="not before its last L0s"
        ),
    ],
)
def test_picks(tree, now, picked):
    assert list(POLICY.plan(at(tree, now), compactions())) == picked


def test_too_many_runs_of_the_newest_window_become_fewer_in_the_cheapest_way():
    sizes = (90, 9, 90, 9, 90, 1, 9, 1, 900)
    runs = [(20 - index, size) for index, size in enumerate(sizes)]
    policy = replace(POLICY, include_size_threshold=2.0)
    (picked,) = list(policy.plan(at(with_runs(l0(), *runs), 30), compactions()))
    assert picked == merge((), (16, 15, 14, 13), 13)


def test_beyond_max_windows_runs_have_to_grow():
    """The two oldest of seven windows are merged; 8 is more than four times 1, 4 is not."""
    kept = [(60 * n, 1) for n in range(6, 1, -1)]
    assert list(POLICY.plan(at(with_runs(l0(), *kept, (60, 1), (0, 8)), 361), compactions())) == []
    picked = list(POLICY.plan(at(with_runs(l0(), *kept, (60, 1), (0, 4)), 361), compactions()))
    assert picked == [merge((), (60, 0), 0)]


@pytest.mark.parametrize(
    ("tree", "now", "picked"),
    [
        pytest.param(with_runs(l0(), (61, 9), (1, 9)), 359, [], id="the window is a second too young"),
        pytest.param(with_runs(l0(), (61, 9), (1, 9)), 360, [merge((), (1,), 1)], id="expired"),
        pytest.param(with_runs(l0(), (61, 9), (1, 9)), 420, [merge((), (61, 1), 1)], id="two go as one"),
        pytest.param(with_runs(l0(), (61, 9), (1, 0)), 360, [], id="one without rows is left"),
        pytest.param(with_runs(l0(), (61, 9), (1, 0)), 420, [merge((), (61, 1), 1)], id="and taken along"),
        pytest.param(with_runs(l0(), (1, 9), written=361), 362, [], id="what is left of it is not looked at again"),
    ],
)
def test_expired_windows(tree, now, picked):
    assert list(EXPIRING.plan(at(tree, now), compactions())) == picked


def test_expiry_is_measured_by_the_tick_of_the_manifest():
    """A custom clock that counts from one cannot be compared with windows."""
    tree = with_runs(l0(900), (61, 9), (1, 9))
    assert list(EXPIRING.plan(replace(at(tree, 0), last_l0_clock_tick=7), compactions())) == []


def test_runs_of_other_policies_are_older_than_all_windows():
    """Otherwise each merge would make them newer, and one window after the other would be merged again."""
    old = SortedRun(id=RunId(7), ssts=(view_at(T + 70, 900),))
    tree = replace(l0(), compacted=(*with_runs(l0(), (69, 5)).compacted, old))
    assert list(POLICY.plan(at(tree, 200), compactions())) == []


def test_a_crowd_does_not_wait_for_an_l0_that_waits_for_the_crowd():
    """Nine runs of a closed window delay its last L0, so they are merged without it."""
    runs = [(40 - index, 5**index) for index in range(9)]
    (picked,) = list(POLICY.plan(at(with_runs(l0(61, 50), *runs), 61), compactions()))
    assert picked == merge((), tuple(range(39, 31, -1)), 32)


def test_ids_follow_times_and_never_use_up():
    assert run_id_at(T, RunId(3)) == T
    assert run_id_at(T, RunId(T + 9)) == T + 9
    assert run_id_at(2**32 - 1, RunId(3)) == 3, "the clock is broken"


def test_one_merge_of_l0s_per_tree():
    running = entry(50, merge((4, 3, 2, 1), to=4), S.RUNNING)
    assert list(POLICY.plan(at(l0(8, 7, 6, 5, 4, 3, 2, 1), 8), compactions(running))) == []


def test_all_mistakes_in_the_options_are_told_at_once():
    with pytest.raises(InvalidRequestError) as error:
        TimeWindow(window_s=59.0, max_windows=0, default_ttl_s=math.inf, include_size_threshold=1.0)
    for named in ("window must", "max_windows must", "default_ttl must", "include_size_threshold"):
        assert named in str(error.value)
    with pytest.raises(InvalidRequestError, match="merged with each other before they expire"):
        TimeWindow(window_s=3600.0, max_windows=24, default_ttl_s=86400.0)
