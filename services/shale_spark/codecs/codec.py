"""The interface of a value codec, and the handling of values that cannot be decoded."""

from enum import StrEnum
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError

Mask: TypeAlias = NDArray[np.bool_]
_SHOWN_BYTES = 64


class InvalidValue(InvalidRequestError):
    """A stored value does not match the schema, or a row cannot be encoded as a value."""


class OnDecodeError(StrEnum):
    """What to do with a value that cannot be decoded: null columns, or an error."""

    PERMISSIVE = "permissive"
    FAILFAST = "failfast"


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """The columns of ``n`` values, as a ``pyarrow.RecordBatch``.

    ``bad`` has shape (n,) and marks the values that could not be decoded, whose columns are null; ``why`` is the reason
    for the first of them.
    """

    columns: Any
    bad: Mask
    why: str = ""

    def first_failure(self) -> int | None:
        """Return the position of the first value that could not be decoded."""
        return int(np.argmax(self.bad)) if self.bad.any() else None


class ValueCodec(Protocol):
    """Converts bytes to columns and back, a batch at a time.  Must be picklable."""

    def check(self, schema: Any) -> None:
        """Return if columns of this ``pyarrow.Schema`` can be read and written.

        Raises:
            InvalidRequestError: names the column.
        """
        ...

    def decode(self, values: Any, schema: Any) -> Decoded:
        """Decode ``binary`` values, none of them null, to the columns of a ``pyarrow.Schema``."""
        ...

    def encode(self, columns: Any) -> Any:
        """Encode each row of a ``pyarrow.RecordBatch`` as one ``binary`` value.

        Raises:
            InvalidValue: a row cannot be encoded; names it.
        """
        ...


def show_key(key: bytes) -> str:
    """Return a key for an error message; a long one is cut."""
    shown = repr(key[:_SHOWN_BYTES])
    return shown if len(key) <= _SHOWN_BYTES else f"{shown} and {len(key) - _SHOWN_BYTES} more bytes"


def require_decoded(decoded: Decoded, keys: Any, what: str) -> None:
    """Return if all values were decoded.

    Args:
        decoded: the result of the codec.
        keys: their keys, as a ``pyarrow`` array.
        what: the name of the codec.

    Raises:
        InvalidValue: names the key of the first value that was not.
    """
    place = decoded.first_failure()
    if place is not None:
        key = keys[place].as_py()
        shown = show_key(key if isinstance(key, bytes) else str(key).encode())
        raise InvalidValue(
            f"the value of key {shown} is not {what} of this schema: {decoded.why}; mode=permissive gives nulls instead"
        )


def no_failures(count: int) -> Mask:
    """Return the mask of a batch without failures."""
    return np.zeros(count, np.bool_)
