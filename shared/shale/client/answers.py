"""What a client reads from successful answers: another server, such as a proxy, may have sent them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgpack

from shale.errors import UnavailableError
from shale.types import Row

_UNREADABLE = (KeyError, OverflowError, TypeError, ValueError, msgpack.UnpackException)


@contextmanager
def reading(url: str) -> Iterator[None]:
    """Translate what fails while an answer is read; the outcome of a write is then unknown.

    Raises:
        UnavailableError: the answer is not one of Shale.
    """
    try:
        yield
    except _UNREADABLE as error:
        raise UnavailableError(f"{url}: the answer is not one of Shale: {type(error).__name__}: {error}") from error


def fields_in(content: bytes) -> Mapping[str, Any]:
    """Return the fields of a body; used within ``reading``."""
    fields = msgpack.unpackb(content)
    if not isinstance(fields, dict):
        raise TypeError("the body is not an object of names and values")
    return fields


def values_in(fields: Mapping[str, Any], count: int) -> list[bytes | None]:
    """Return the values of ``count`` keys; used within ``reading``."""
    values = fields["values"]
    if not isinstance(values, list) or len(values) != count:
        raise TypeError(f"there is not one value for each of {count} keys")
    if not all(isinstance(value, bytes | None) for value in values):
        raise TypeError("a value is not bytes")
    return values


def row_in(item: Any) -> Row:
    """Return one row of a scan; used within ``reading``."""
    row = Row(*item)
    if type(row.key) is type(row.value) is bytes:
        return row
    raise TypeError("a key or a value is not bytes")


def integer(value: Any) -> int:
    """Return a number of a body or a header; used within ``reading``."""
    if isinstance(value, str):
        return int(value)
    if type(value) is not int:
        raise TypeError(f"{type(value).__name__} is not a number")
    return value
