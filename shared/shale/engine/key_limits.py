"""A range of keys that a handle keeps to, as the owner of one shard of a split database would (docs/protocol.md 11.1).

The range is the caller's and is stored nowhere: a projection itself does not keep anybody from writing outside of it.
"""

from collections.abc import Iterable

from shale.errors import InvalidRequestError
from shale.types import KeyRange


def require_all_inside(limits: KeyRange, keys: Iterable[bytes]) -> None:
    """Return if every key may be written.

    Raises:
        InvalidRequestError: one lies outside.
    """
    for key in keys:
        if not limits.contains(key):
            raise InvalidRequestError(f"key {key[:64]!r} lies outside of the range that this handle keeps to")


def require_some_inside(limits: KeyRange, keys: Iterable[bytes]) -> None:
    """Return if not all of the keys that are read lie outside.

    Raises:
        InvalidRequestError: all of them do.
    """
    outside = b""
    for outside in keys:
        if limits.contains(outside):
            return
    if outside:
        raise InvalidRequestError(f"key {outside[:64]!r} lies outside of the range that this handle keeps to")


def require_overlap(limits: KeyRange, keys: KeyRange) -> None:
    """Return if a scan may find something.

    Raises:
        InvalidRequestError: it would lie wholly outside.
    """
    if not keys.is_empty and limits.intersect(keys).is_empty:
        raise InvalidRequestError("the scan lies outside of the range that this handle keeps to")
