"""Values of the generated accessors in our types.  The buffer was verified before (``shale.format.flat.verifier``)."""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from shale.errors import CorruptionError
from shale.format.flat.verifier import Verifier
from shale.types import Ulid

Table: TypeAlias = Any
"""An object of a generated class.  ``flatc`` marks even required fields as optional, so types would not help here."""

_EnumT = TypeVar("_EnumT", bound=IntEnum)


def corrupt(source: Verifier, table: Table, message: str) -> CorruptionError:
    """Return an error at the place of ``table``."""
    return source.corrupt(message, table._tab.Pos)


def member_of(kinds: type[_EnumT], value: int, what: str, source: Verifier, table: Table) -> _EnumT:
    """Return the member of an enumeration.

    Raises:
        CorruptionError: ``value``, which ``what`` names, is none of them.
    """
    try:
        return kinds(value)
    except ValueError as error:
        raise corrupt(source, table, f"unknown {what} {value}") from error


def ulid_of(table: Table) -> Ulid:
    """Return the id in a ``Ulid`` table."""
    return Ulid(table.High() << 64 | table.Low())


def optional_ulid(table: Table | None) -> Ulid | None:
    """Return the id in a ``Ulid`` table, if there is one."""
    return None if table is None else ulid_of(table)


def uuid_of(table: Table) -> UUID:
    """Return the id in a ``Uuid`` table."""
    return UUID(int=table.High() << 64 | table.Low())


def optional_uuid(table: Table | None) -> UUID | None:
    """Return the id in a ``Uuid`` table, if there is one."""
    return None if table is None else uuid_of(table)


def bytes_of(vector: Any) -> bytes | None:
    """Return the bytes of a vector that ``…AsNumpy`` returned; ``None`` for 0, which means that it is absent."""
    return None if isinstance(vector, int) else vector.tobytes()


def numbers_of(vector: Any) -> Sequence[int]:
    """Return the numbers of a vector that ``…AsNumpy`` returned; none for 0, which means that it is absent."""
    return () if isinstance(vector, int) else vector.tolist()


def string_of(raw: bytes | None) -> str | None:
    """Return a string, whose UTF-8 the verifier has checked."""
    return None if raw is None else raw.decode()


def tables_of(get: Callable[[int], Table], count: int) -> list[Table]:
    """Return all tables of a vector, given its accessors of one element and of its length."""
    return [get(index) for index in range(count)]


def vector_start(table: Table, slot: int) -> int:
    """Return where the elements of the vector in ``slot`` begin, for readers of whole columns; it must be present."""
    start: int = table._tab.Vector(table._tab.Offset(4 + 2 * slot))
    return start
