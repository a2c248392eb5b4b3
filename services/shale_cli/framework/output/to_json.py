"""Converts values of the library to JSON: dataclasses become objects, bytes base64, enumerations their names."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from shale.admin.json_values import b64, rfc3339
from shale.types import Ulid

_SECONDS = {"create_s": "create", "expire_s": "expire"}
"""Times in whole seconds; 0 means none."""


def to_json(value: Any) -> Any:
    """Convert a value to JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return _object(value)
    match value:
        case Ulid() | UUID():
            return str(value)
        case Enum():
            return value.name.lower()
        case Mapping():
            return {str(name): to_json(item) for name, item in value.items()}
        case tuple() | list():
            return [to_json(item) for item in value]
        case bytes():
            return b64(value)
        case _:
            return value


def _object(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in fields(value):
        item = getattr(value, each.name)
        if each.name in _SECONDS:
            name = _SECONDS[each.name]
            found[f"{name}_time"] = rfc3339(item * 1000) if item else None
            found[f"{name}_ms"] = item * 1000 if item else None
        else:
            found[f"{each.name}_b64" if "bytes" in str(each.type) else each.name] = to_json(item)
    return found
