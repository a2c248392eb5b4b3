"""The body of ``POST /v1/scan``: ``{"start", "stop", "prefix", "reverse", "limit", "resume", "after", "same_state"}``.

All of it is optional.  ``resume`` is a token of an earlier answer to the same range and direction; ``after`` the last
key that the client has, where it has more than the token knows of; ``same_state`` refuses to go on in a newer state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shale.api.fields import binary, known_only, whole_number
from shale.api.scan_token import ScanToken, decode_token, scan_name
from shale.service.problems import Problem, bad_request

_FIELDS = frozenset({"start", "stop", "prefix", "limit", "resume", "reverse", "after", "same_state"})
_LIMIT_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """What to read: ``start`` is inclusive, ``stop`` exclusive; only what lies behind ``after``, in reading order."""

    name: bytes
    start: bytes | None = None
    stop: bytes | None = None
    prefix: bytes | None = None
    after: bytes | None = None
    reverse: bool = False
    limit: int | None = None
    resumed: ScanToken | None = None
    same_state: bool = False

    def arguments(self) -> dict[str, Any]:
        """As ``Reads.scan`` takes them."""
        start, stop = self.start, self.stop
        if self.after is not None and self.reverse:
            stop = self.after if stop is None else min(stop, self.after)
        elif self.after is not None:
            start = max(start or b"", self.after + b"\x00")
        return {"prefix": self.prefix, "start": start, "stop": stop, "reverse": self.reverse, "limit": self.limit}


def scan_request(body: Mapping[str, object], *, packed: bool) -> ScanRequest:
    """Check a request.

    Raises:
        Problem: a field is unknown or malformed, or the token is of another scan (400).
    """
    known_only(body, _FIELDS)
    reverse, same_state = _flag(body, "reverse"), _flag(body, "same_state")
    limit = body.get("limit")
    if limit is not None:
        limit = whole_number(limit, "limit", most=_LIMIT_MAX, what="a number of rows")
    start, stop, prefix, after = (
        binary(body[name], name, packed=packed) if body.get(name) is not None else None
        for name in ("start", "stop", "prefix", "after")
    )
    name = scan_name(start, stop, prefix, reverse=reverse)
    resumed = None
    if body.get("resume") is not None:
        resumed = decode_token(body["resume"])
        if resumed.scan != name:
            raise bad_request("resume: the token is of another scan; send the same range and direction with it")
        after = resumed.behind if after is None else after
    if after is not None and not after:
        raise bad_request("after: it is empty")
    return ScanRequest(
        name=name,
        start=start,
        stop=stop,
        prefix=prefix,
        after=after,
        reverse=reverse,
        limit=limit,
        resumed=resumed,
        same_state=same_state,
    )


def _flag(body: Mapping[str, object], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise _no_flag(name)
    return value


def _no_flag(name: str) -> Problem:
    return bad_request(f"{name}: neither true nor false")
