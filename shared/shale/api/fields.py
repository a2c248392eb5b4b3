"""Parsing of request fields: base64, durability, lifetimes, and the key in the path."""

import binascii
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from shale.api.messages import Request
from shale.core.json_numbers import without_fraction
from shale.core.ttl import NEVER, Ttl
from shale.engine.read.read_point import Durability
from shale.service.http.problems import Problem, bad_request

KV_PREFIX = b"/v1/kv/"
TTL_MAX_MS = 1 << 62
_TIMESTAMP_MAX_MS = (1 << 63) - 1
_DIGITS_MAX = 20
_BARE_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_KV_PREFIX_LENGTH = len(KV_PREFIX)


class RowExpiry(NamedTuple):
    """The expiry of a write, in the engine's arguments."""

    ttl: Ttl = None
    expire_at: int | None = None


DEFAULT_EXPIRY = RowExpiry()


def key_from_path(path: bytes) -> bytes:
    """Return the key of ``/v1/kv/{key}``, percent-decoded from the raw path; a key may contain any bytes, also slashes.

    Raises:
        Problem: the key is empty, or a percent sign is not followed by two hexadecimal digits.  A client that forgot to
            encode a percent sign would otherwise read and write another key.
    """
    key = path[_KV_PREFIX_LENGTH:]
    if not key:
        raise bad_request("the key is empty")
    if b"%" not in key:
        return key
    if _BARE_PERCENT.search(key) is not None:
        raise bad_request("the key has a percent sign that is not encoded: write %25")
    return unquote_to_bytes(key)


def wants_durable(call: Request) -> bool:
    """Return whether a write waits for durability, from ``X-Shale-Durability``; the default is ``durable``."""
    return durability(call, default="durable") == "durable"


def durability(call: Request, *, default: Durability) -> Durability:
    """Return the value of ``X-Shale-Durability``.

    Raises:
        Problem: the value is neither ``durable`` nor ``memory`` (400).
    """
    text = call.header(b"x-shale-durability")
    if text is None:
        return default
    match text.lower():
        case "durable":
            return "durable"
        case "memory":
            return "memory"
    raise bad_request(f"X-Shale-Durability: {text!r} is neither durable nor memory")


def expiry_from_headers(call: Request) -> RowExpiry:
    """Return the expiry of ``X-Shale-TTL-Ms`` (milliseconds, or ``never``) or ``X-Shale-Expire-At`` (epoch ms).

    Raises:
        Problem: a header is malformed, or both are present (400).
    """
    if not call.has(b"x-shale-ttl-ms") and not call.has(b"x-shale-expire-at"):
        return DEFAULT_EXPIRY
    ttl, expire_at = call.header(b"x-shale-ttl-ms"), call.header(b"x-shale-expire-at")
    if ttl is not None and expire_at is not None:
        raise bad_request("X-Shale-TTL-Ms and X-Shale-Expire-At: use one or the other")
    if ttl is not None:
        return RowExpiry(ttl=_ttl(_number(ttl) if ttl != "never" else ttl, "X-Shale-TTL-Ms"))
    return RowExpiry(expire_at=_timestamp_ms(_number(expire_at or ""), "X-Shale-Expire-At"))


def expiry_from_body(value: object, name: str) -> RowExpiry:
    """Return the expiry of a body field: milliseconds, ``"never"``, ``{"expire_at": epoch ms}``, or null.

    Raises:
        Problem: the field is malformed (400).
    """
    if value is None:
        return DEFAULT_EXPIRY
    if isinstance(value, dict) and set(value) == {"expire_at"}:
        return RowExpiry(expire_at=_timestamp_ms(value["expire_at"], f"{name} expire_at"))
    return RowExpiry(ttl=_ttl(value, name))


def _number(text: str) -> object:
    return int(text) if len(text) <= _DIGITS_MAX and text.isascii() and text.isdigit() else text


def _ttl(value: object, name: str) -> Ttl:
    if value == "never":
        return NEVER
    value = without_fraction(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= TTL_MAX_MS:
        raise bad_request(f"{name}: must be a number of milliseconds, or never")
    return value / 1000


def _timestamp_ms(value: object, name: str) -> int:
    value = without_fraction(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _TIMESTAMP_MAX_MS:
        raise bad_request(f"{name}: must be a number of milliseconds since 1970")
    return value


def from_base64(text: object, name: str) -> bytes:
    """Decode a base64 field of a JSON body."""
    if not isinstance(text, str):
        raise bad_request(f"{name}: not base64 text")
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise bad_request(f"{name}: not base64: {error}") from error


def binary(value: object, name: str, *, packed: bool) -> bytes:
    """Return the bytes of a field: binary in msgpack, base64 in JSON."""
    if packed:
        if not isinstance(value, bytes):
            raise bad_request(f"{name}: not binary data")
        return value
    return from_base64(value, name)


def whole_number(value: object, name: str, *, most: int, what: str) -> int:
    """Return a field that is an integer from 0 to ``most``.

    Raises:
        Problem: the field is anything else (400).
    """
    value = without_fraction(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise bad_request(f"{name}: not {what}")
    return value


def reject_unknown_fields(body: Mapping[str, object], known: frozenset[str], place: str = "") -> None:
    """Reject unknown fields: with a misspelled bound a scan would read the whole database.

    Args:
        body: the fields of an object.
        known: the fields that it may have.
        place: where the object stands in the body; empty: it is the body.
    """
    unknown = sorted(set(body) - known, key=repr)  # msgpack allows both text and bytes as names
    if unknown:
        raise _unknown(f"{place} {unknown[0]}".lstrip(), known)


def _unknown(name: str, known: frozenset[str]) -> Problem:
    return bad_request(f"{name}: no such field; known fields: {', '.join(sorted(known))}")


def to_base64(data: bytes | memoryview) -> bytes:
    """Encode bytes for a JSON response."""
    return binascii.b2a_base64(data, newline=False)
