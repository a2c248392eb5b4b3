"""The key range that a handle is limited to: that of a projected clone, or one that the caller gives.

Source: docs/reference/protocol.md 11.1.
"""

from collections.abc import Iterable

from shale.errors import InvalidRequestError
from shale.types import KeyRange


def require_all_inside(limits: KeyRange, keys: Iterable[bytes]) -> None:
    """Require that all keys lie in the range.

    Raises:
        InvalidRequestError: a key lies outside.
    """
    for key in keys:
        if not limits.contains(key):
            raise InvalidRequestError(f"key {key[:64]!r} lies outside of the range that this handle keeps to")


def require_some_inside(limits: KeyRange, keys: Iterable[bytes]) -> None:
    """Require that at least one of the keys lies in the range.

    Raises:
        InvalidRequestError: all keys lie outside.
    """
    outside = b""
    for outside in keys:
        if limits.contains(outside):
            return
    if outside:
        raise InvalidRequestError(f"key {outside[:64]!r} lies outside of the range that this handle keeps to")


def require_overlap(limits: KeyRange, keys: KeyRange) -> None:
    """Require that a scan and the range overlap.

    Raises:
        InvalidRequestError: they do not.
    """
    if not keys.is_empty and limits.intersect(keys).is_empty:
        raise InvalidRequestError("the scan lies outside of the range that this handle keeps to")
