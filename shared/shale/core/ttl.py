"""The lifetime of a write: the forms that callers use, and the expiry time that a commit computes.

Source: docs/reference/protocol.md 7.3; SlateDB's Ttl (default, none, after, at).
"""

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from shale.core.settings_values import Duration, parse_duration_ms
from shale.errors import InvalidRequestError, WrongType

_AFTER_MAX_MS = 1 << 62
"""A longer lifetime counts as none: commit time plus lifetime could not be stored."""

_MS = timedelta(milliseconds=1)


class Never(Enum):
    """The type of ``NEVER``."""

    NEVER = "never"

    def __repr__(self) -> str:
        return "shale.NEVER"


NEVER: Final = Never.NEVER
"""As ``ttl``: the write does not expire, even if the database has a default lifetime."""


class ExpireAt(NamedTuple):
    """A write that expires at a time of the database's clock, in milliseconds since 1970."""

    ms: int


Ttl: TypeAlias = Duration | Never | None
Timestamp: TypeAlias = datetime | int
Lifetime: TypeAlias = int | ExpireAt | None
"""Milliseconds after the commit, a fixed time, or ``None`` for no expiry."""


def resolve_lifetime(ttl: Ttl, expire_at: Timestamp | None, default_ms: int | None) -> Lifetime:
    """Combine the two arguments of a write.

    Args:
        ttl: the time from commit to expiry; ``None``: the default; ``NEVER``: no expiry.
        expire_at: the time of expiry instead: a ``datetime`` with a time zone, or milliseconds since 1970.
        default_ms: the database's default lifetime; ``None``: no expiry.

    Raises:
        InvalidRequestError: both were given, or one is impossible.
    """
    if expire_at is not None:
        if ttl is not None:
            raise InvalidRequestError("ttl and expire_at were given: use one or the other")
        return ExpireAt(timestamp_ms(expire_at, name="expire_at"))
    if ttl is None:
        return default_ms
    if ttl is NEVER:
        return None
    after_ms = parse_duration_ms(ttl, name="ttl")
    return after_ms if after_ms < _AFTER_MAX_MS else None


def expire_ts(lifetime: int | ExpireAt, create_ts: int) -> int:
    """Return when a write of a commit at ``create_ts`` expires, in milliseconds."""
    return create_ts + lifetime if isinstance(lifetime, int) else lifetime.ms


def timestamp_ms(timestamp: Timestamp, *, name: str) -> int:
    """Return a timestamp in whole milliseconds since 1970.

    Raises:
        InvalidRequestError: neither a ``datetime`` with a time zone nor an integer of 64 bits.
    """
    if isinstance(timestamp, datetime):
        if timestamp.utcoffset() is None:
            raise InvalidRequestError(f"{name}: {timestamp} has no time zone: add one, such as tzinfo=datetime.UTC")
        return (timestamp - datetime(1970, 1, 1, tzinfo=UTC)) // _MS
    if type(timestamp) is not int:
        raise WrongType(f"{name}: {timestamp!r} is neither a datetime nor milliseconds since 1970")
    if not -(1 << 63) <= timestamp < 1 << 63:
        raise InvalidRequestError(f"{name}: {timestamp!r} is neither a datetime nor milliseconds since 1970")
    return timestamp
