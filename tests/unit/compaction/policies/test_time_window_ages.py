"""Ages of L0s and runs: which times are believed, and when a window has expired."""

from dataclasses import replace

import pytest

from shale.compaction.policies.time_window_ages import Ages, Now, ages_of, now_of, run_id_at
from shale.types import Manifest, RunId, Segment, SortedRun, Tree
from tests.unit.compaction.harness import view_at

FIRST = 10**9
LAST = 2**32 - 2**28
T = 1_700_000_040  # the first second of a minute
MINUTE = T // 60


def run(run_id: int, *written: int) -> SortedRun:
    return SortedRun(id=RunId(run_id), ssts=tuple(view_at(second, 1, run_id) for second in written))


@pytest.mark.parametrize(
    ("tick_ms", "tick_s"),
    [
        pytest.param(Manifest().last_l0_clock_tick, 0, id="never set"),
        pytest.param(7, 0, id="a counter"),
        pytest.param(FIRST * 1000 - 1, 0, id="before 2001"),
        pytest.param(FIRST * 1000, FIRST, id="2001"),
        pytest.param(T * 1000 + 999, T, id="whole seconds"),
        pytest.param(LAST * 1000 + 999, LAST, id="2097"),
        pytest.param(LAST * 1000 + 1000, 0, id="after 2097"),
    ],
)
def test_a_clock_tick_that_is_no_time_is_ignored(tick_ms, tick_s):
    assert now_of(Manifest(last_l0_clock_tick=tick_ms)) == Now(tick_s, tick_s)


def test_the_newest_time_is_the_tick_or_an_l0_of_any_tree():
    trees = Tree(l0=(view_at(T + 1, 1), view_at(T + 5, 1))), Tree(l0=(view_at(T + 9, 1), view_at(T + 2, 1)))
    state = Manifest(tree=trees[0], segments=(Segment(prefix=b"a", tree=trees[1]),), last_l0_clock_tick=T * 1000)
    assert now_of(state) == Now(T + 9, T)
    assert now_of(replace(state, last_l0_clock_tick=(T + 10) * 1000)) == Now(T + 10, T + 10)


@pytest.mark.parametrize(
    ("second", "fresh", "run_id"),
    [
        pytest.param(T, 3, T, id="the time"),
        pytest.param(T, T, T, id="is free"),
        pytest.param(T, T + 1, T + 1, id="is in use"),
        pytest.param(LAST, 3, LAST, id="the last believed time"),
        pytest.param(LAST + 1, 3, 3, id="a wrong clock"),
    ],
)
def test_the_id_of_a_new_run(second, fresh, run_id):
    assert run_id_at(second, RunId(fresh)) == run_id


def test_ages_of_a_tree():
    tree = Tree(
        l0=(view_at(T + 130, 1), view_at(T + 59, 1), view_at(T + 60, 1)),
        compacted=(run(T + 100, T + 300, T + 400), run(T + 10, T + 200), run(FIRST, 5, 4), run(8), run(7, T)),
    )
    assert ages_of(tree, Now(T + 130, T + 120), 60.0) == Ages(
        window_s=60.0,
        newest_window=MINUTE + 2,
        tick_s=T + 120,
        l0_seconds=(T + 130, T + 59, T + 59),
        l0_windows=(MINUTE + 2, MINUTE, MINUTE),
        run_windows=(MINUTE + 1, MINUTE, FIRST // 60, 0, 0),
        written_seconds=(T + 400, T + 200, 5, None, T),
    )


def test_the_newest_window_is_not_older_than_the_newest_run():
    assert ages_of(Tree(compacted=(run(T + 100),)), Now(T, T), 60.0).newest_window == MINUTE + 1
    assert ages_of(Tree(compacted=(run(T + 100),)), Now(T + 120, T), 60.0).newest_window == MINUTE + 2
    assert ages_of(Tree(), Now(T, T), 60.0).newest_window == MINUTE


@pytest.mark.parametrize(
    ("run_ids", "windows"),
    [
        pytest.param((FIRST,), (FIRST // 60,), id="an id from 2001 on is a time"),
        pytest.param((FIRST - 1,), (MINUTE + 2,), id="a lower one is not: the write time counts"),
        pytest.param((T + 60, 9), (MINUTE + 1, MINUTE), id="limited to the window before that of a newer run"),
        pytest.param((T + 119, T + 1, 9), (MINUTE + 1, MINUTE, MINUTE - 1), id="of the next newer run"),
        pytest.param((9, 8), (MINUTE + 2, MINUTE + 2), id="without newer times"),
    ],
)
def test_the_window_of_a_run_of_another_policy(run_ids, windows):
    """All runs were written two minutes after the first second; in a minute that begins at 40 seconds of the epoch."""
    tree = Tree(compacted=tuple(run(run_id, T + 120) for run_id in run_ids))
    assert ages_of(tree, Now(T + 120, T), 60.0).run_windows == windows


def test_a_run_of_another_policy_that_was_written_by_a_wrong_clock():
    tree = Tree(compacted=(run(9, 2**33),))
    assert ages_of(tree, Now(T, T), 60.0).run_windows == (LAST // 60,)


def ages(*run_windows: int, tick_s: int = 0, written: tuple[int | None, ...] = ()) -> Ages:
    return Ages(
        window_s=60.0,
        newest_window=99,
        tick_s=tick_s,
        l0_seconds=(),
        l0_windows=(),
        run_windows=run_windows,
        written_seconds=written,
    )


@pytest.mark.parametrize(
    ("tick_s", "count"),
    [
        pytest.param(0, 0, id="the tick is no time"),
        pytest.param(60 * 5 + 100 - 1, 0, id="a second before"),
        pytest.param(60 * 5 + 100, 1, id="the end of window 4 and the lifetime"),
        pytest.param(60 * 6 + 100 - 1, 1, id="window 5 lives"),
        pytest.param(60 * 6 + 100, 2, id="window 5"),
        pytest.param(60 * 99, 3, id="all"),
    ],
)
def test_expired_windows_are_counted_from_the_oldest(tick_s, count):
    assert ages(9, 5, 4, tick_s=tick_s).expired_count(100.0) == count


@pytest.mark.parametrize(
    ("written_s", "is_in_time"), [(None, False), (0, True), (60 * 5 + 49, True), (60 * 5 + 50, False)]
)
def test_a_run_that_was_written_long_after_its_window_was_rewritten_for_age(written_s, is_in_time):
    assert ages(9, 4, written=(10**6, written_s)).was_written_in_time(1, 100.0) is is_in_time
