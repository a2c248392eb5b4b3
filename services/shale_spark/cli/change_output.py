"""Output of stream rows as lines: JSON for programs, text for people."""

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from shale.admin.json_values import b64

if TYPE_CHECKING:
    from pyspark.sql import Row

    from shale_cli.framework.output.writer import Output


def as_json(row: "Row") -> dict[str, Any]:
    """Return plain values; bytes, and lists of them, are base64 under a name that ends in ``_b64``.

    Values that JSON numbers cannot hold are text: decimals, and floats that are not finite.
    """
    return _members(row.asDict(recursive=True))


def as_text(output: "Output", value: object) -> str:
    """Return one cell of a text line."""
    if isinstance(value, bytes | bytearray):
        return output.show(bytes(value))
    if isinstance(value, datetime):
        return _in_utc(value).isoformat()
    return "" if value is None else str(value)


def _members(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {f"{name}_b64" if _holds_bytes(value) else str(name): _plain(value) for name, value in values.items()}


def _holds_bytes(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_holds_bytes(each) for each in value)
    return isinstance(value, bytes | bytearray)


def _plain(value: Any) -> Any:
    match value:
        case bytes() | bytearray():
            return b64(bytes(value))
        case datetime():
            return _in_utc(value)
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case Mapping():
            return _members(value)
        case list() | tuple():
            return [_plain(each) for each in value]
        case None | str() | int() | float() | date():
            return value
    return str(value)


def _in_utc(value: datetime) -> datetime:
    """Convert a time from PySpark, which is in the zone of this process without a ``tzinfo``."""
    return value.astimezone(UTC)
