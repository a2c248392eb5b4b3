"""Reading what clients send: base64, durability, lifetimes, and the key in a path."""

import binascii
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.types import Scope

from shale.service.problems import bad_request

KV_PREFIX = b"/v1/kv/"
TTL_MAX_MS = 1 << 62
_TTL_DIGITS_MAX = 20


def key_in_path(scope: Scope) -> bytes:
    """The key of ``/v1/kv/{key}``, percent-decoded from the raw path: a key may hold any bytes, also slashes.

    Raises:
        Problem: the key is empty.
    """
    raw: bytes = scope["raw_path"]
    key = unquote_to_bytes(raw.removeprefix(KV_PREFIX))
    if not key:
        raise bad_request("the key is empty")
    return key


def wants_durable(request: Request) -> bool:
    """``X-Shale-Durability``: ``durable`` (the default) or ``memory``."""
    text = request.headers.get("x-shale-durability", "durable").lower()
    if text not in ("durable", "memory"):
        raise bad_request(f"X-Shale-Durability: {text!r} is neither durable nor memory")
    return text == "durable"


def ttl_s(value: object, name: str) -> float | None:
    """A lifetime in milliseconds, as the engine takes it."""
    if value is None:
        return None
    if isinstance(value, str) and len(value) <= _TTL_DIGITS_MAX and value.isascii() and value.isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= TTL_MAX_MS:
        raise bad_request(f"{name}: not a number of milliseconds")
    return value / 1000


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


def known_only(body: Mapping[str, object], known: frozenset[str]) -> None:
    """Refuse names that mean nothing: a misspelt bound would read the whole database."""
    unknown = sorted(set(body) - known, key=repr)  # names in msgpack may be text and bytes
    if unknown:
        raise bad_request(f"{unknown[0]}: no such field; there are {', '.join(sorted(known))}")


def to_base64(data: bytes) -> bytes:
    """Bytes for a JSON answer."""
    return binascii.b2a_base64(data, newline=False)
