"""The columns of a table, which the first records decide."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from shale.errors import InvalidRequestError

COLUMNS_MAX = 10_000
"""A table has a cell per row and column: with more names, rows that have few fields each fill the memory."""
_ADVICE = "use ndjson"


def column_names(records: Sequence[Mapping[str, Any]], *, within_objects: bool) -> list[str]:
    """Return the names of all records, in the order in which they occur.

    Args:
        records: the first records of a table.
        within_objects: whether the names within objects become columns, too.

    Raises:
        InvalidRequestError: there are more than ``COLUMNS_MAX`` columns.
    """
    names = dict.fromkeys(name for record in records for name in record)
    if len(names) > COLUMNS_MAX or (within_objects and _are_too_many(records)):
        raise InvalidRequestError(f"the first {len(records)} rows have more than {COLUMNS_MAX} columns: {_ADVICE}")
    return list(names)


def require_known(records: Iterable[Mapping[str, Any]], names: Collection[str]) -> None:
    """Require that records have no other columns.

    Raises:
        InvalidRequestError: a record has; names the column.
    """
    known = set(names)
    for record in records:
        if not record.keys() <= known:
            unknown = min(record.keys() - known)
            raise InvalidRequestError(f"a row has the column {unknown!r}, which the first rows have not: {_ADVICE}")


def _are_too_many(records: Iterable[Mapping[str, Any]]) -> bool:
    """Count the different places at which records have a name, at any depth; the elements of a list share theirs.

    Objects of Arrow do not count: those of one column have one type.
    """
    places: dict[tuple[int, str], int] = {}
    left: list[tuple[int, Any]] = []
    for record in records:
        left.append((0, record))
        while left:
            place, value = left.pop()
            if isinstance(value, list):
                left += [(place, each) for each in value if isinstance(each, dict | list)]
                continue
            for name, each in value.items():
                within = places.setdefault((place, name), len(places) + 1)
                if isinstance(each, dict | list):
                    left.append((within, each))
            if len(places) > COLUMNS_MAX:
                return True
    return False
