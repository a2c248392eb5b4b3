"""Fields of what a command tells, by dotted names: chosen by ``--columns``, and flattened for CSV."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shale.errors import InvalidRequestError


def flat(item: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Objects inside become dotted names; lists stay as they are."""
    found: dict[str, Any] = {}
    for name, value in item.items():
        dotted = f"{above}{name}"
        if isinstance(value, Mapping) and value:
            found.update(flat(value, f"{dotted}."))
        else:
            found[dotted] = value
    return found


def all_names(items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Dotted names of everything in any of the items, in the order in which they are met."""
    return list(dict.fromkeys(name for item in items for name in flat(item)))


def chosen(item: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """What ``columns`` name, in their order; ``None`` for what this item lacks.  No columns: everything."""
    if not columns:
        return dict(item)
    return {column: value_of(item, column) for column in columns}


def value_of(item: Mapping[str, Any], column: str) -> Any:
    """The value under a dotted name; a name with dots of its own is found as well."""
    if column in item:
        return item[column]
    name, dot, below = column.partition(".")
    inside = item.get(name)
    return value_of(inside, below) if dot and isinstance(inside, Mapping) else None


def require_known(columns: Sequence[str], items: Sequence[Mapping[str, Any]], besides: Sequence[str] = ()) -> None:
    """Return if some item has each of the columns, or if there are no items that could tell.

    Raises:
        InvalidRequestError: names those that there are.
    """
    if not items:
        return
    known = list(dict.fromkeys((*besides, *_every_name(items))))
    unknown = [column for column in columns if column not in known]
    if unknown:
        raise InvalidRequestError(f"--columns: there is no {', '.join(unknown)}; there are {', '.join(known)}")


def _every_name(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for item in items:
        for name, value in item.items():
            yield name
            if isinstance(value, Mapping):
                yield from (f"{name}.{below}" for below in _every_name([value]))
