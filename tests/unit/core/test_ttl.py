"""The lifetime of writes, in every form that a caller can pass."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import shale
from shale.core.ttl import ExpireAt, expire_ts, resolve_lifetime
from shale.errors import InvalidRequestError

NOON = datetime(2026, 5, 4, 12, 0, 0, 250_900, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ttl", "expire_at", "lifetime"),
    [
        pytest.param(None, None, 500, id="the default"),
        pytest.param("1h", None, 3_600_000, id="text"),
        pytest.param(timedelta(milliseconds=15), None, 15, id="timedelta"),
        pytest.param(1.5, None, 1_500, id="a number of seconds"),
        pytest.param(0, None, 0, id="at once"),
        pytest.param(shale.NEVER, None, None, id="never"),
        pytest.param(float(1 << 62), None, None, id="longer than can be stored"),
        pytest.param(None, 1_234, ExpireAt(1_234), id="at milliseconds"),
        pytest.param(None, -5, ExpireAt(-5), id="before 1970"),
        pytest.param(None, NOON, ExpireAt(1_777_896_000_250), id="at a time"),
        pytest.param(
            None, NOON.astimezone(timezone(timedelta(hours=5))), ExpireAt(1_777_896_000_250), id="in another zone"
        ),
    ],
)
def test_forms(ttl: Any, expire_at: Any, lifetime: Any) -> None:
    assert resolve_lifetime(ttl, expire_at, 500) == lifetime
    if lifetime is not None:
        assert expire_ts(lifetime, 1_000) == (lifetime.ms if isinstance(lifetime, ExpireAt) else 1_000 + lifetime)


@pytest.mark.parametrize(
    ("ttl", "expire_at"),
    [
        pytest.param("1h", 5, id="both"),
        pytest.param(shale.NEVER, 5, id="never, and at a time"),
        pytest.param(-1, None, id="negative"),
        pytest.param("soon", None, id="no duration"),
        pytest.param(True, None, id="a truth value"),
        pytest.param(None, datetime(2026, 5, 4), id="no time zone"),  # noqa: DTZ001 - that is the point
        pytest.param(None, "2026-05-04", id="text as a time"),
        pytest.param(None, 1.5, id="a fraction of a millisecond"),
        pytest.param(None, 1 << 63, id="beyond 64 bits"),
    ],
)
def test_impossible_lifetimes_are_refused(ttl: Any, expire_at: Any) -> None:
    with pytest.raises(InvalidRequestError):
        resolve_lifetime(ttl, expire_at, None)
