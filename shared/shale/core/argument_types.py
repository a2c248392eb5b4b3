"""Checks of the types of arguments: an object of another type is refused where it is given, not where it is used."""

from collections.abc import Iterable, Sequence
from typing import Any

from shale.core.bytes_like import BytesLike
from shale.errors import InvalidRequestError, WrongType


def require_attributes(what: str, value: object, names: Sequence[str], wanted: str) -> None:
    """Require an object that has the attributes of a protocol.

    Args:
        what: the argument.
        value: what was given.
        names: attributes that tell the protocol from others.
        wanted: what to give instead, such as "an Env".

    Raises:
        WrongType: an attribute is missing.
    """
    if not all(hasattr(value, name) for name in names):
        raise WrongType(f"{what} is of type {type(value).__name__}: give {wanted}")


def require_at_least(what: str, value: Any, least: int) -> None:
    """Require a whole number; raises ``InvalidRequestError``, and ``WrongType`` for other types."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise WrongType(f"{what} is of type {type(value).__name__}: give a whole number, at least {least}")
    if value < least:
        raise InvalidRequestError(f"{what}={value} is too small: must be at least {least}")


def keys_of(keys: Any) -> Any:
    """Return an iterable of keys; one key is refused, because its bytes would be taken for keys.

    Raises:
        WrongType: it is no iterable, or one key.
    """
    if isinstance(keys, BytesLike | str) or not isinstance(keys, Iterable):
        raise WrongType(f"keys is of type {type(keys).__name__}: give a list of keys")
    return keys
