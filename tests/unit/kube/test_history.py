"""Tests of the history of a client, and of what the database must hold after it."""

from pathlib import Path

import pytest

from tests.kube.load.history import (
    Outcome,
    Write,
    append,
    differences,
    load,
    longest_gap,
    own_key,
    percentile,
    shared_key,
)


def write(number: int, outcome: Outcome, key: str = shared_key(1), end: float = 0.0) -> Write:
    return Write(1, number, key, outcome, end, end)


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    writes = [write(1, "acknowledged"), write(2, "unknown", own_key(1, 2))]
    for each in writes:
        append(tmp_path / "history", each)
    assert load(tmp_path / "history") == writes


@pytest.mark.parametrize(
    ("outcomes", "value", "is_possible"),
    [
        (["acknowledged"], "1/1", True),
        (["acknowledged"], None, False),
        (["acknowledged", "acknowledged"], "1/1", False),
        (["acknowledged", "unknown"], "1/1", True),
        (["acknowledged", "unknown"], "1/2", True),
        (["unknown", "acknowledged"], "1/1", False),
        (["acknowledged", "rejected"], "1/2", False),
        (["unknown"], None, True),
        (["rejected"], None, True),
        (["rejected"], "1/1", False),
    ],
)
def test_the_newest_acknowledged_write_or_a_later_unknown_one_is_there(
    outcomes: list[Outcome], value: str | None, is_possible: bool
) -> None:
    history = [write(number, outcome) for number, outcome in enumerate(outcomes, start=1)]
    rows = {} if value is None else {shared_key(1): value}
    assert (differences(history, rows) == []) is is_possible


def test_a_row_that_nothing_wrote_is_found() -> None:
    assert differences([], {"once/9/00000001": "9/1"}) == ["once/9/00000001: nothing wrote it"]


def test_the_longest_time_without_an_acknowledgement_begins_and_ends_with_the_interval() -> None:
    history = [write(1, "acknowledged", end=2.0), write(2, "unknown", end=5.0), write(3, "acknowledged", end=9.0)]
    assert longest_gap(history, 1.0, 10.0) == 7.0
    assert longest_gap(history, 9.5, 12.0) == 2.5


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(1, 21)]
    assert percentile(values, 0.5) == 10.0
    assert percentile(values, 0.95) == 19.0
    assert percentile([3.0], 0.5) == 3.0
