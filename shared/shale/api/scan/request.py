"""The body of ``POST /v1/scan``: ``{"start", "stop", "prefix", "reverse", "limit", "resume", "after", "same_state"}``.

All fields are optional.  ``resume`` is the token of an earlier response for the same range and direction; ``after`` is
the last key that the client has, if it is beyond the token; ``same_state`` makes a resume in a newer state fail.
"""

from collections.abc import Mapping
from typing import Any

from shale.api.fields import binary, reject_unknown_fields, whole_number
from shale.api.scan.token import ScanToken, decode_token, scan_fingerprint
from shale.core.lazy_dataclass import dataclass
from shale.service.http.problems import Problem, bad_request

_FIELDS = frozenset({"start", "stop", "prefix", "limit", "resume", "reverse", "after", "same_state"})
_LIMIT_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """A range to scan: ``start`` is inclusive, ``stop`` exclusive; only keys after ``after``, in scan order."""

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
        """Return the arguments of ``Reads.scan``."""
        start, stop = self.start, self.stop
        if self.after is not None and self.reverse:
            stop = self.after if stop is None else min(stop, self.after)
        elif self.after is not None:
            start = max(start or b"", self.after + b"\x00")
        return {"prefix": self.prefix, "start": start, "stop": stop, "reverse": self.reverse, "limit": self.limit}


def scan_request(body: Mapping[str, object], *, packed: bool) -> ScanRequest:
    """Parse a scan request.

    Raises:
        Problem: a field is unknown or malformed, or the token belongs to another scan (400).
    """
    reject_unknown_fields(body, _FIELDS)
    reverse, same_state = _flag(body, "reverse"), _flag(body, "same_state")
    limit = body.get("limit")
    if limit is not None:
        limit = whole_number(limit, "limit", most=_LIMIT_MAX, what="a number of rows")
    start, stop, prefix, after = (
        binary(body[name], name, packed=packed) if body.get(name) is not None else None
        for name in ("start", "stop", "prefix", "after")
    )
    name = scan_fingerprint(start, stop, prefix, reverse=reverse)
    resumed = None
    if body.get("resume") is not None:
        resumed = decode_token(body["resume"])
        if resumed.scan != name:
            raise bad_request("resume: the token belongs to another scan; send it with the same range and direction")
        after = resumed.last_key if after is None else after
    if after is not None and not after:
        raise bad_request("after: the key is empty")
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
        raise _not_a_boolean(name)
    return value


def _not_a_boolean(name: str) -> Problem:
    return bad_request(f"{name}: must be true or false")
