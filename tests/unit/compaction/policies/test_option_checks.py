"""Checks of options: one error lists all mistakes."""

import math

import pytest

from shale.compaction.policies.option_checks import (
    positive_problems,
    ratio_problems,
    refuse,
    source_count_problems,
)
from shale.errors import InvalidRequestError


def test_all_problems_are_in_one_error() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        refuse(source_count_problems(0, 4), positive_problems("window", -1.0), ())
    assert str(caught.value) == "min_compaction_sources must be at least 1, not 0; window must be above 0, not -1"


def test_valid_options_are_accepted() -> None:
    refuse(source_count_problems(2, 8, least_most=2), ratio_problems("ratio", 2.0, least=2))


@pytest.mark.parametrize(
    ("fewest", "most", "count"), [(1, 1, 0), (4, 3, 1), (0, 0, 2), (3, 1, 2)], ids=["ok", "above", "zero", "both"]
)
def test_source_counts(fewest: int, most: int, count: int) -> None:
    least_most = 2 if (fewest, most) == (3, 1) else 1
    assert len(list(source_count_problems(fewest, most, least_most=least_most))) == count


def test_each_mistake_in_the_source_counts_is_named() -> None:
    assert list(source_count_problems(3, 1, least_most=2)) == [
        "max_compaction_sources must be at least 2, not 1",
        "min_compaction_sources 3 must not be above max_compaction_sources 1",
    ]
    assert list(source_count_problems(0, 0)) == [
        "min_compaction_sources must be at least 1, not 0",
        "max_compaction_sources must be at least 1, not 0",
    ]
    assert list(source_count_problems(1, 2, least_most=2)) == list(source_count_problems(2, 2)) == []


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_size_is_finite_and_positive(value: float) -> None:
    assert len(list(positive_problems("size", value))) == 1
    assert list(positive_problems("size", None)) == list(positive_problems("size", 0.5)) == []


@pytest.mark.parametrize("value", [1.9, math.inf, math.nan])
def test_a_ratio_is_finite_and_at_least_its_bound(value: float) -> None:
    assert len(list(ratio_problems("ratio", value, least=2.0))) == 1
