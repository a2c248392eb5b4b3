"""Values that are one column: bytes, or text."""

from typing import Any

import numpy as np
import pyarrow as pa

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale_spark.codecs.codec import Decoded, InvalidValue, no_failures


@dataclass(frozen=True, slots=True)
class BinaryValueCodec:
    """The value itself, as the only column."""

    def check(self, schema: Any) -> None:
        """See ``ValueCodec``."""
        _check_single(schema, "binary", pa.types.is_binary)

    def decode(self, values: Any, schema: Any) -> Decoded:
        """See ``ValueCodec``."""
        return Decoded(pa.RecordBatch.from_arrays([values], schema=schema), no_failures(len(values)))

    def encode(self, columns: Any) -> Any:
        """See ``ValueCodec``."""
        return columns.column(0).cast(pa.binary())


@dataclass(frozen=True, slots=True)
class TextValueCodec:
    """UTF-8 text, as the only column."""

    def check(self, schema: Any) -> None:
        """See ``ValueCodec``."""
        _check_single(schema, "utf8", pa.types.is_string)

    def decode(self, values: Any, schema: Any) -> Decoded:
        """See ``ValueCodec``."""
        text, bad = as_text(values)
        return Decoded(pa.RecordBatch.from_arrays([text], schema=schema), bad, "not UTF-8" if bad.any() else "")

    def encode(self, columns: Any) -> Any:
        """See ``ValueCodec``."""
        column = columns.column(0)
        if column.null_count:
            raise InvalidValue(f"row {column.is_null().index(True).as_py()} has no text")
        return column.cast(pa.binary())


def as_text(values: Any) -> tuple[Any, Any]:
    """Return binary as strings, null where it is not UTF-8, and a mask of these."""
    try:
        return values.cast(pa.string()), no_failures(len(values))
    except pa.ArrowInvalid:
        texts = [_text(value) for value in values.to_pylist()]
        bad = np.array([text is None for text in texts], np.bool_)
        return pa.array(texts, pa.string()), bad


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _check_single(schema: Any, name: str, is_right: Any) -> None:
    if len(schema) != 1 or not is_right(schema.field(0).type):
        wanted = "string" if name == "utf8" else "binary"
        raise InvalidRequestError(f"values of format {name} are one column of type {wanted}, not {list(schema)}")
