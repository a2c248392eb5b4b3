"""Fields of results by dotted names: selected by ``--columns``, and flattened for CSV."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shale.errors import InvalidRequestError


def flat(item: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Flatten nested objects to dotted names; lists stay unchanged."""
    found: dict[str, Any] = {}
    for name, value in item.items():
        dotted = f"{above}{name}"
        if isinstance(value, Mapping) and value:
            found.update(flat(value, f"{dotted}."))
        else:
            found[dotted] = value
    return found


def all_names(items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the dotted names of all fields of all items, in order of appearance."""
    return list(dict.fromkeys(name for item in items for name in flat(item)))


def chosen(item: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """Return the fields ``columns`` in their order; missing ones are ``None``.  No columns: all fields."""
    if not columns:
        return dict(item)
    return {column: value_of(item, column) for column in columns}


def value_of(item: Mapping[str, Any], column: str) -> Any:
    """Return the value of a dotted name; names that contain dots are found, too."""
    if column in item:
        return item[column]
    name, dot, below = column.partition(".")
    inside = item.get(name)
    return value_of(inside, below) if dot and isinstance(inside, Mapping) else None


def require_known(columns: Sequence[str], items: Sequence[Mapping[str, Any]], besides: Sequence[str] = ()) -> None:
    """Check that each column exists in some item; without items, every column is accepted.

    Raises:
        InvalidRequestError: a column is unknown; the message lists the known ones.
    """
    if not items:
        return
    known = list(dict.fromkeys((*besides, *_every_name(items))))
    unknown = [column for column in columns if column not in known]
    if unknown:
        raise InvalidRequestError(f"--columns: unknown: {', '.join(unknown)}; known: {', '.join(known)}")


def _every_name(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for item in items:
        for name, value in item.items():
            yield name
            if isinstance(value, Mapping):
                yield from (f"{name}.{below}" for below in _every_name([value]))
