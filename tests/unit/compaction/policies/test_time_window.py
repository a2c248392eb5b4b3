"""The exact picks of the time-window policy: windows of a minute, ids that are seconds."""

import math
from dataclasses import replace

import pytest

from shale.compaction.policies.time_window import TimeWindow
from shale.compaction.policies.time_window_ages import run_id_at
from shale.errors import InvalidRequestError
from shale.types import Manifest, RunId, Segment, SortedRun, TieredSpec, Tree
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
        pytest.param(l0(3, 2), 59, [], id="two of the newest window wait"),
        pytest.param(l0(2, 1), 60, [merge((2, 1), to=2)], id="until it is over"),
        pytest.param(l0(63, 62, 61, 2), 63, [merge((2,), to=2)], id="enough L0s, the oldest alone in its window"),
        pytest.param(l0(9, 8, 7, 6, 5, 4, 3, 2, 1), 9, [merge((8, 7, 6, 5, 4, 3, 2, 1), to=8)], id="eight of nine L0s"),
        pytest.param(
            with_runs(l0(4, 3, 2, 1), (4, 900)), 5, [merge((4, 3, 2, 1), to=5)], id="the time is in use as an id"
        ),
        pytest.param(with_runs(l0(), (9, 5), (7, 5), (5, 5)), 10, [], id="three similar runs wait"),
        pytest.param(
            with_runs(l0(), (9, 1), (7, 9), (5, 9), (3, 9), (1, 9)),
            10,
            [merge((), (7, 5, 3, 1), 1)],
            id="a later start",
        ),
        pytest.param(
            with_runs(l0(), *((20 - n, 5) for n in range(10))),
            30,
            [merge((), tuple(range(18, 10, -1)), 11)],
            id="eight of ten similar runs",
        ),
        pytest.param(
            with_runs(l0(), (69, 5), (68, 999), (9, 1), (3, 999)),
            70,
            [merge((), (9, 3), 3)],
            id="a window that is over beside the newest",
        ),
        pytest.param(
            with_runs(l0(), *((20 - n, 5**n) for n in range(10))),
            60,
            [merge((), tuple(range(18, 10, -1)), 11)],
            id="eight of ten runs of a window that is over",
        ),
        pytest.param(
            with_runs(l0(), (69, 5), (9, 1), (3, 9), (-51, 1), (-57, 9)),
            70,
            [merge((), (9, 3), 3), merge((), (-51, -57), -57)],
            id="one window after the other",
        ),
        pytest.param(with_runs(l0(9)), 61, [], id="a single L0 without a run of its window"),
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


@pytest.mark.parametrize(
    ("sizes", "picked"),
    [
        pytest.param((100, 1000, 100, 1000, 100, 1, 5, 1), (), id="eight runs are not too many"),
        pytest.param((100, 1000, 100, 1000, 100, 1, 5, 1, 5), (15, 14, 13, 12), id="the oldest are the cheapest"),
        pytest.param((1, 5, 1, 5, 30, 500, 100, 1000, 90), (20, 19, 18, 17), id="the newest are the cheapest"),
    ],
)
def test_the_smallest_adjacent_runs_of_too_many_are_merged(sizes, picked):
    runs = [(20 - index, size) for index, size in enumerate(sizes)]
    planned = list(POLICY.plan(at(with_runs(l0(), *runs), 30), compactions()))
    assert planned == ([merge((), picked, picked[-1])] if picked else [])


def test_runs_in_use_do_not_count_as_too_many_and_are_not_merged():
    sizes = (100, 1000, 100, 1000, 100, 1, 5, 1, 5, 30)
    runs = [(20 - index, size) for index, size in enumerate(sizes)]
    state = at(with_runs(l0(), *runs), 30)
    one = entry(50, merge((), (12,), 12), S.RUNNING)
    assert list(POLICY.plan(state, compactions(one))) == [merge((), (16, 15, 14, 13), 13)]
    two = entry(51, merge((), (20,), 20), S.RUNNING)
    assert list(POLICY.plan(state, compactions(one, two))) == []


def test_two_runs_are_the_least_of_a_merge():
    """With a minimum of one source, a run would be merged into itself again and again."""
    policy = replace(POLICY, min_compaction_sources=1)
    assert list(policy.plan(at(with_runs(l0(), (9, 5)), 10), compactions())) == []
    assert list(policy.plan(at(with_runs(l0(), (9, 5), (7, 5)), 10), compactions())) == [merge((), (9, 7), 7)]
    assert list(policy.plan(at(l0(9), 10), compactions())) == [merge((9,), to=9)]


def test_a_window_whose_runs_are_in_use_does_not_delay_older_ones():
    state = at(with_runs(l0(), (69, 5), (9, 1), (3, 9), (-51, 1), (-57, 9)), 70)
    running = entry(50, merge((), (9, 3), 3), S.RUNNING)
    assert list(POLICY.plan(state, compactions(running))) == [merge((), (-51, -57), -57)]


KEEPS_ONE = TimeWindow(window_s=60.0, max_windows=1)


@pytest.mark.parametrize(
    ("sizes", "picked"),
    [
        pytest.param((4,), (), id="one run"),
        pytest.param((1, 5), (), id="a much larger older run"),
        pytest.param((1, 4), (0, -60), id="one that is not much larger"),
        pytest.param((1, 4, 20), (0, -60, -120), id="the sum counts"),
        pytest.param((1, 4, 21), (0, -60), id="much larger than the sum"),
        pytest.param((9, 1, 1), (0, -60, -120), id="smaller older runs"),
        pytest.param((1, 9, 9), (-60, -120), id="a later start"),
        pytest.param((5,) * 9, tuple(-60 * n for n in range(1, 9)), id="eight at most"),
    ],
)
def test_older_windows_are_merged_by_size(sizes, picked):
    runs = [(-60 * index, size) for index, size in enumerate(sizes)]
    state = at(with_runs(l0(), (61, 7), *runs), 62)
    assert next(iter(KEEPS_ONE.plan(state, compactions())), None) == (merge((), picked, picked[-1]) if picked else None)


def test_an_archived_run_in_use_delays_no_other_merge():
    state = at(with_runs(l0(), (61, 7), (0, 5), (-60, 5), (-120, 99), (-180, 99)), 62)
    running = entry(50, merge((), (-60,), -60), S.RUNNING)
    assert list(KEEPS_ONE.plan(state, compactions(running))) == [merge((), (-120, -180), -180)]


@pytest.mark.parametrize(
    ("policy", "runs", "is_crowded"),
    [
        pytest.param(POLICY, [(50 - n, 5**n) for n in range(9)], True, id="nine of a window that is over"),
        pytest.param(POLICY, [(50 - n, 5**n) for n in range(8)], False, id="eight"),
        pytest.param(POLICY, [(110 - n, 5**n) for n in range(16)], True, id="sixteen of the newest window"),
        pytest.param(POLICY, [(110 - n, 5**n) for n in range(15)], False, id="fifteen"),
        pytest.param(
            POLICY, [(60 * w + n, 9) for w in (0, -1) for n in (5, 4, 3, 2, 1)], True, id="five of each of two windows"
        ),
        pytest.param(
            POLICY,
            [*((n, 9) for n in (5, 4, 3, 2, 1)), *((n - 60, 9) for n in (5, 4, 3, 2))],
            False,
            id="five and four",
        ),
        pytest.param(EXPIRING, [(-60 * n, 9) for n in range(9)], False, id="one of each window"),
        pytest.param(
            KEEPS_ONE, [(61, 9), *((-60 * n, 5) for n in range(9))], True, id="nine equal ones in the archive"
        ),
        pytest.param(KEEPS_ONE, [(61, 9), *((-60 * n, 5) for n in range(8))], False, id="eight equal ones"),
        pytest.param(KEEPS_ONE, [(61, 9), *((-60 * n, 4**n) for n in range(9))], True, id="nine that grow too slowly"),
        pytest.param(KEEPS_ONE, [(61, 9), *((-60 * n, 5**n) for n in range(9))], False, id="nine that grow"),
    ],
)
def test_l0s_wait_while_eight_runs_are_to_be_merged_away(policy, runs, is_crowded):
    """The first proposal is the merge of the L0s, unless runs are merged first."""
    policy = replace(policy, default_ttl_s=None)
    state = at(with_runs(l0(115, 114, 113, 112), *runs), 118)
    first = next(iter(policy.plan(state, compactions())))
    assert (first != merge((115, 114, 113, 112), to=115)) is is_crowded


def test_each_tree_has_ages_of_its_own():
    young, old = l0(64, 63, 62, 61), l0(5, 4)
    state = replace(at(young, 65), segments=(Segment(prefix=b"a", tree=old),))
    planned = list(POLICY.plan(state, compactions()))
    assert planned == [merge((64, 63, 62, 61), to=64), replace(merge((5, 4), to=65), segment=b"a")]


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


def test_at_most_eight_expired_runs_are_rewritten_at_once():
    runs = [(1 - 60 * index, 9) for index in range(10)]
    planned = list(EXPIRING.plan(at(with_runs(l0(), *runs), 360), compactions()))
    oldest = tuple(1 - 60 * index for index in range(2, 10))
    assert planned[0] == merge((), oldest, oldest[-1])


def test_expired_runs_in_use_are_left():
    state = at(with_runs(l0(), (61, 9), (1, 9)), 420)
    running = entry(50, merge((), (1,), 1), S.RUNNING)
    assert list(EXPIRING.plan(state, compactions(running))) == []


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
    TimeWindow(window_s=3600.0, max_windows=25, default_ttl_s=86400.0)
    for bound in ({"window_s": 60.0}, {"max_compaction_sources": 2, "min_compaction_sources": 2}, {"max_windows": 1}):
        TimeWindow(**bound)
    for refused in ({"max_compaction_sources": 1, "min_compaction_sources": 1}, {"include_size_threshold": 1.9}):
        with pytest.raises(InvalidRequestError):
            TimeWindow(**refused)
