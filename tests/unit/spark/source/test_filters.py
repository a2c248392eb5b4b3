"""Filters on keys become ranges; unsupported filters are left to Spark."""

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    Not,
    StringContains,
    StringStartsWith,
)

from shale.types import KeyRange
from shale_spark.source.filters import KeySet, push_filters

KEY = ("key",)


def pushed(*filters: Filter, text: bool = False) -> tuple[KeySet, list[Filter]]:
    return push_filters(filters, KeySet(), key_is_text=text)


def test_conditions_narrow_each_other() -> None:
    """All of them must hold."""
    wanted, left = pushed(GreaterThanOrEqual(KEY, b"b"), LessThan(KEY, b"d"), IsNotNull(KEY))
    assert wanted == KeySet(KeyRange.half_open(b"b", b"d"))
    assert left == []
    wanted, _ = pushed(In(KEY, (b"a", b"c", b"b", None)), LessThan(KEY, b"c"))
    assert wanted.keys == (b"a", b"b")
    assert pushed(EqualTo(KEY, b"a"), EqualTo(KEY, b"b"))[0].is_empty
    assert pushed(EqualNullSafe(KEY, None))[0].is_empty
    assert pushed(EqualTo(KEY, b""))[0].is_empty


def test_text_is_compared_by_its_bytes() -> None:
    """UTF-8 keeps the order of characters."""
    wanted, left = pushed(StringStartsWith(KEY, "é"), text=True)
    assert wanted.key_range == KeyRange.with_prefix("é".encode())
    assert left == []


@pytest.mark.parametrize(
    ("each", "text"),
    [
        (EqualTo(("value",), b"a"), False),
        (EqualTo(("key", "part"), b"a"), False),
        (Not(EqualTo(KEY, b"a")), False),
        (StringContains(KEY, "a"), True),
        (IsNull(KEY), False),
        (IsNotNull(KEY), True),
        (EqualTo(KEY, 5), False),
        (EqualTo(KEY, "a"), False),
        (EqualTo(KEY, b"a"), True),
        (In(KEY, (b"a", 5)), False),
        (EqualNullSafe(KEY, None), True),
    ],
)
def test_the_rest_is_sparks(each: Filter, text: bool) -> None:
    """They are returned unchanged, and narrow no range."""
    wanted, left = pushed(each, text=text)
    assert wanted == KeySet()
    assert left[0] is each
