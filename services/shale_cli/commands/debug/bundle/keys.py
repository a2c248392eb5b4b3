"""Replaces keys by their rank among all keys of the bundle, which keeps their order visible."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from shale_cli.framework.output.to_json import to_json

_NO_KEYS = frozenset({"sequence_tracker"})


class KeyNames:
    """Replacements for keys: ``{"place": 3, "bytes": 12}`` is the fourth smallest key, with twelve bytes."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._sorted = sorted(set(keys))

    def name(self, key: bytes) -> dict[str, int]:
        """Return the replacement of a key."""
        return {"place": bisect_left(self._sorted, key), "bytes": len(key)}


def keys_in(value: Any) -> Iterator[bytes]:
    """Yield every key in a manifest or a compactions file."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from keys_in(each)
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            if each.name not in _NO_KEYS:
                yield from keys_in(getattr(value, each.name))


def without_keys(value: Any, names: KeyNames) -> Any:
    """Convert a manifest or a compactions file to JSON, with ranks instead of keys."""
    if isinstance(value, bytes):
        return names.name(value)
    if isinstance(value, tuple):
        return [without_keys(each, names) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: to_json(getattr(value, each.name))
            if each.name in _NO_KEYS
            else without_keys(getattr(value, each.name), names)
            for each in fields(value)
        }
    return to_json(value)
