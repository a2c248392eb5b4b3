"""Keys without what is in them: each becomes its place among all keys of the bundle, so that order still shows."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from shale_cli.plain import plain

_NO_KEYS = frozenset({"sequence_tracker"})


class KeyNames:
    """Names for keys: ``{"place": 3, "bytes": 12}`` is the fourth smallest, of twelve bytes."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._sorted = sorted(set(keys))

    def name(self, key: bytes) -> dict[str, int]:
        """What stands for a key that was given before."""
        return {"place": bisect_left(self._sorted, key), "bytes": len(key)}


def keys_in(value: Any) -> Iterator[bytes]:
    """Every key in a manifest or a compactions file."""
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
    """A manifest or a compactions file as JSON, with places for keys."""
    if isinstance(value, bytes):
        return names.name(value)
    if isinstance(value, tuple):
        return [without_keys(each, names) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: plain(getattr(value, each.name))
            if each.name in _NO_KEYS
            else without_keys(getattr(value, each.name), names)
            for each in fields(value)
        }
    return plain(value)
