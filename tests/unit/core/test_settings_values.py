"""Parsing of durations and sizes."""

from datetime import timedelta

import pytest

from shale.core.settings_values import parse_duration_ms, parse_duration_s, parse_size
from shale.engine.options import DbOptions
from shale.errors import InvalidRequestError
from shale.types import Compression


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("250ms", 0.25),
        ("5m", 300),
        ("1h30m", 5400),
        ("7days 30min 10s", 7 * 86400 + 1810),
        ("1.5 s", 1.5),
        ("0", 0),
        (timedelta(minutes=2), 120),
        (3, 3),
        (0.5, 0.5),
    ],
)
def test_durations(written, seconds: float) -> None:
    assert parse_duration_s(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written", ["", "5", "ms", "5 parsecs", "5m-", -1, float("inf"), float("nan"), True, None, "-5s"]
)
def test_impossible_durations_name_the_setting(written) -> None:
    with pytest.raises(InvalidRequestError, match="flush_interval"):
        parse_duration_s(written, name="flush_interval")


@pytest.mark.parametrize(
    ("written", "size"),
    [(5, 5), ("5", 5), ("64MiB", 64 << 20), ("64MB", 64_000_000), ("1.5KiB", 1536), ("2 gib", 2 << 30), ("7b", 7)],
)
def test_sizes(written, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize("written", ["", "MiB", "5 apples", "0.3b", -1, True, 1.5, None])
def test_impossible_sizes_name_the_setting(written) -> None:
    with pytest.raises(InvalidRequestError, match="l0_sst_size_bytes"):
        parse_size(written, name="l0_sst_size_bytes")


def test_options_from_keywords() -> None:
    options = DbOptions.from_keywords(
        {"flush_interval": "250ms", "l0_sst_size_bytes": "1MiB", "compression": "zstd", "default_ttl": "1h"}
    )
    assert (options.flush_interval_s, options.l0_sst_size_bytes) == (0.25, 1 << 20)
    assert (options.compression, options.default_ttl_ms) == (Compression.ZSTD, 3_600_000)
    assert DbOptions.from_keywords({"flush_interval": None}).flush_interval_s is None


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({"flush_intervall": 1}, "flush_intervall"),
        ({"flush_interval": "soon"}, "flush_interval"),
        ({"max_unflushed_bytes": 1}, "max_unflushed_bytes"),
        ({"max_wal_flushes_before_l0_flush": 5}, "max_wal_flushes_before_l0_flush"),
        ({"l0_flush_parallelism": 0}, "l0_flush_parallelism"),
        ({"compression": "middle-out"}, "compression"),
        ({"flush_interval": 1, "flush_interval_s": 1}, "flush_interval"),
    ],
)
def test_impossible_options_are_named(keywords, named: str) -> None:
    with pytest.raises(InvalidRequestError, match=named):
        DbOptions.from_keywords(keywords)


def test_durations_beyond_all_milliseconds_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="lifetime"):
        parse_duration_ms(1e308, name="lifetime")


@pytest.mark.parametrize("parse", [parse_duration_s, parse_duration_ms])
def test_a_duration_that_no_clock_can_hold_is_refused(parse) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidRequestError, match="too long"):
        parse(1e305, name="min_age")
