"""Boundary files: one u64 as ASCII decimal digits (docs/reference/format.md 15)."""

from shale.core.bytes_like import BytesLike
from shale.errors import InvalidObjectState
from shale.types import U64_MAX

_LENGTH_MAX = 64


def encode_boundary(boundary: int) -> bytes:
    """Return the bytes that SlateDB would write: no padding, no newline."""
    assert 0 <= boundary <= U64_MAX
    return b"%d" % boundary


def decode_boundary(data: BytesLike, *, path: str | None = None) -> int:
    """Read a boundary file; white space around the number is allowed.

    Raises:
        InvalidObjectState: not a number, or above 2**64 - 1.

    Source: docs/reference/format.md 15; SlateDB slatedb-txn-obj/src/object_store.rs.
    """
    if len(data) <= _LENGTH_MAX:
        text = bytes(data).strip()
        if text.isdigit() and (value := int(text)) <= U64_MAX:
            return value
    raise InvalidObjectState(f"a boundary file holds {bytes(data[:32])!r}", path=path, offset=0)
