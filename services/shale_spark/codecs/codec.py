"""What a value codec is, and what becomes of values that it cannot read."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shale.errors import InvalidRequestError

Mask: TypeAlias = NDArray[np.bool_]
_SHOWN_BYTES = 64


class ValueRefused(InvalidRequestError):
    """A stored value is not what the schema says, or a row cannot be written as a value."""


class OnBad(StrEnum):
    """What to do with a value that cannot be decoded: nulls in its columns, or an error."""

    PERMISSIVE = "permissive"
    FAILFAST = "failfast"


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """The columns of ``n`` values, as a ``pyarrow.RecordBatch``.

    ``bad`` has shape (n,) and marks the values that were not understood, whose columns are null; ``why`` says what was
    wrong with the first of them.
    """

    columns: Any
    bad: Mask
    why: str = ""

    def first_bad(self) -> int | None:
        """The place of the first value that was not understood."""
        return int(np.argmax(self.bad)) if self.bad.any() else None


class ValueCodec(Protocol):
    """Bytes to columns and back, a batch at a time.  Pickles."""

    def check(self, schema: Any) -> None:
        """Return if columns of this ``pyarrow.Schema`` can be read and written.

        Raises:
            InvalidRequestError: names the column.
        """
        ...

    def decode(self, values: Any, schema: Any) -> Decoded:
        """Turn ``binary`` values, none of them null, into the columns of a ``pyarrow.Schema``."""
        ...

    def encode(self, columns: Any) -> Any:
        """Turn each row of a ``pyarrow.RecordBatch`` into one ``binary`` value.

        Raises:
            ValueRefused: a row cannot be written; says which.
        """
        ...


def show_key(key: bytes) -> str:
    """A key in an error message; a long one is cut."""
    shown = repr(key[:_SHOWN_BYTES])
    return shown if len(key) <= _SHOWN_BYTES else f"{shown} and {len(key) - _SHOWN_BYTES} more bytes"


def refuse_bad(decoded: Decoded, keys: Any, what: str) -> None:
    """Return if all values were understood.

    Args:
        decoded: what became of the values.
        keys: their keys, as a ``pyarrow`` array.
        what: the name of the codec.

    Raises:
        ValueRefused: names the key of the first that was not.
    """
    place = decoded.first_bad()
    if place is not None:
        key = keys[place].as_py()
        shown = show_key(key if isinstance(key, bytes) else str(key).encode())
        raise ValueRefused(
            f"the value of key {shown} is not {what} of this schema: {decoded.why}; option mode=permissive reads on"
        )


def no_bad(count: int) -> Mask:
    """The mask of values that are all understood."""
    return np.zeros(count, np.bool_)
