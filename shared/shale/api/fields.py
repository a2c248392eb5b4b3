"""Reading what clients send: base64, durability, lifetimes, and the key in a path."""

import binascii
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from shale.api.call import Call
from shale.engine.lifetime import NEVER, Ttl
from shale.engine.read_point import Durability
from shale.service.problems import Problem, bad_request

KV_PREFIX = b"/v1/kv/"
TTL_MAX_MS = 1 << 62
_MOMENT_MAX_MS = (1 << 63) - 1
_DIGITS_MAX = 20
_BARE_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_KV_PREFIX_LENGTH = len(KV_PREFIX)


class Life(NamedTuple):
    """How long a write lives, as the engine takes it."""

    ttl: Ttl = None
    expire_at: int | None = None


DEFAULT_LIFE = Life()


def key_in_path(path: bytes) -> bytes:
    """The key of ``/v1/kv/{key}``, percent-decoded from the raw path: a key may hold any bytes, also slashes.

    Raises:
        Problem: the key is empty, or a percent sign does not stand before two hexadecimal digits: whoever forgot to
            encode one would read and write another key.
    """
    key = path[_KV_PREFIX_LENGTH:]
    if not key:
        raise bad_request("the key is empty")
    if b"%" not in key:
        return key
    if _BARE_PERCENT.search(key) is not None:
        raise bad_request("the key has a percent sign that is not encoded: write it as %25")
    return unquote_to_bytes(key)


def wants_durable(call: Call) -> bool:
    """``X-Shale-Durability`` of a write: ``durable`` (the default) or ``memory``."""
    return durability(call, default="durable") == "durable"


def durability(call: Call, *, default: Durability) -> Durability:
    """``X-Shale-Durability``.

    Raises:
        Problem: neither ``durable`` nor ``memory`` (400).
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


def life_in_headers(call: Call) -> Life:
    """``X-Shale-TTL-Ms`` (milliseconds, or ``never``) or ``X-Shale-Expire-At`` (milliseconds since 1970).

    Raises:
        Problem: malformed, or both (400).
    """
    if not call.has(b"x-shale-ttl-ms") and not call.has(b"x-shale-expire-at"):
        return DEFAULT_LIFE
    ttl, expire_at = call.header(b"x-shale-ttl-ms"), call.header(b"x-shale-expire-at")
    if ttl is not None and expire_at is not None:
        raise bad_request("X-Shale-TTL-Ms and X-Shale-Expire-At: use one or the other")
    if ttl is not None:
        return Life(ttl=_ttl(_number(ttl) if ttl != "never" else ttl, "X-Shale-TTL-Ms"))
    return Life(expire_at=_moment(_number(expire_at or ""), "X-Shale-Expire-At"))


def life_in_body(value: object, name: str) -> Life:
    """A lifetime in a body: milliseconds, ``"never"``, ``{"expire_at": milliseconds since 1970}``, or none.

    Raises:
        Problem: malformed (400).
    """
    if value is None:
        return DEFAULT_LIFE
    if isinstance(value, dict) and set(value) == {"expire_at"}:
        return Life(expire_at=_moment(value["expire_at"], f"{name} expire_at"))
    return Life(ttl=_ttl(value, name))


def _number(text: str) -> object:
    return int(text) if len(text) <= _DIGITS_MAX and text.isascii() and text.isdigit() else text


def _ttl(value: object, name: str) -> Ttl:
    if value == "never":
        return NEVER
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= TTL_MAX_MS:
        raise bad_request(f"{name}: neither a number of milliseconds nor never")
    return value / 1000


def _moment(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOMENT_MAX_MS:
        raise bad_request(f"{name}: not a number of milliseconds since 1970")
    return value


def from_base64(text: object, name: str) -> bytes:
    """Bytes of a JSON body."""
    if not isinstance(text, str):
        raise bad_request(f"{name}: not base64 text")
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise bad_request(f"{name}: not base64: {error}") from error


def binary(value: object, name: str, *, packed: bool) -> bytes:
    """Bytes of a body: as they are in msgpack, base64 in JSON."""
    if packed:
        if not isinstance(value, bytes):
            raise bad_request(f"{name}: not binary data")
        return value
    return from_base64(value, name)


def whole_number(value: object, name: str, *, most: int, what: str) -> int:
    """A number of a body, not negative.

    Raises:
        Problem: something else (400).
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise bad_request(f"{name}: not {what}")
    return value


def known_only(body: Mapping[str, object], known: frozenset[str]) -> None:
    """Refuse names that mean nothing: a misspelt bound would read the whole database."""
    unknown = sorted(set(body) - known, key=repr)  # names in msgpack may be text and bytes
    if unknown:
        raise _unknown(unknown[0], known)


def _unknown(name: str, known: frozenset[str]) -> Problem:
    return bad_request(f"{name}: no such field; there are {', '.join(sorted(known))}")


def to_base64(data: bytes) -> bytes:
    """Bytes for a JSON answer."""
    return binascii.b2a_base64(data, newline=False)
