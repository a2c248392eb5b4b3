"""Formatting of sizes and ages."""

import pytest

from shale.core.units import format_age, format_size


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (7 << 50, "7168.0 TiB")],
)
def test_sizes_are_for_people(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("age_ms", "text"), [(-5, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (3 * 3_600_000 + 59, "3 h"), (10**9, "11 d")]
)
def test_ages_are_for_people(age_ms: int, text: str) -> None:
    assert format_age(age_ms) == text
