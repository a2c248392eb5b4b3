"""How long a write lives: the forms in which callers say it, and what a commit makes of them.

Source: docs/protocol.md 7.3; SlateDB's Ttl (default, none, after, at).
"""

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from shale.engine.settings_values import Duration, parse_duration_ms
from shale.errors import InvalidRequestError

_AFTER_MAX_MS = 1 << 62
"""A write that lives longer than this does not expire: no commit time plus it can be stored."""

_MS = timedelta(milliseconds=1)


class Never(Enum):
    """The type of ``NEVER``."""

    NEVER = "never"

    def __repr__(self) -> str:
        return "shale.NEVER"


NEVER: Final = Never.NEVER
"""As ``ttl``: the write does not expire, whatever the database's default is."""


class ExpireAt(NamedTuple):
    """A write that expires at a time of the database's clock, in milliseconds since 1970."""

    ms: int


Ttl: TypeAlias = Duration | Never | None
Moment: TypeAlias = datetime | int
Lifetime: TypeAlias = int | ExpireAt | None
"""Milliseconds from the commit on, a moment, or for ever."""


def lifetime_of(ttl: Ttl, expire_at: Moment | None, default_ms: int | None) -> Lifetime:
    """What the two arguments of a write come to.

    Args:
        ttl: how long from the commit on; ``None``: the default; ``NEVER``: for ever.
        expire_at: when it expires instead: a ``datetime`` with a time zone, or milliseconds since 1970.
        default_ms: of the database.

    Raises:
        InvalidRequestError: both were given, or one is impossible.
    """
    if expire_at is not None:
        if ttl is not None:
            raise InvalidRequestError("ttl and expire_at were given: use one or the other")
        return ExpireAt(moment_ms(expire_at, name="expire_at"))
    if ttl is None:
        return default_ms
    if ttl is NEVER:
        return None
    after_ms = parse_duration_ms(ttl, name="ttl")
    return after_ms if after_ms < _AFTER_MAX_MS else None


def expire_ts(lifetime: int | ExpireAt, create_ts: int) -> int:
    """When a write of a commit at ``create_ts`` expires; all in milliseconds."""
    return create_ts + lifetime if isinstance(lifetime, int) else lifetime.ms


def moment_ms(moment: Moment, *, name: str) -> int:
    """A moment in milliseconds since 1970, cut to whole ones.

    Raises:
        InvalidRequestError: neither a ``datetime`` with a time zone nor an integer of 64 bits.
    """
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise InvalidRequestError(f"{name}: {moment} has no time zone")
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MS
    if type(moment) is not int or not -(1 << 63) <= moment < 1 << 63:
        raise InvalidRequestError(f"{name}: {moment!r} is neither a datetime nor milliseconds since 1970")
    return moment
