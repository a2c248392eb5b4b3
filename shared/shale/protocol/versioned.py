"""What the generic part of the protocol speaks of: versions of a value, and where they are kept."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from shale.store.port import Buffer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    """A value and the id of the file that holds it."""

    id: int
    value: T


@dataclass(frozen=True, slots=True)
class VersionMeta:
    """A version as a listing shows it.  ``last_modified_ms`` is the store's clock."""

    id: int
    last_modified_ms: int
    size: int


def accept_anything(_base: object, _new: object) -> None:
    """The invariants of a namespace that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace(Generic[T]):
    """One directory of numbered files, each a complete snapshot of one value.

    Args:
        resource: what logs and metrics call it, ``manifest`` or ``compactions``.
        directory: prefix of a listing, ending in ``/``.
        boundary_key: the object that remembers which ids may have been deleted.
        key: id to key.
        parse: key to id; ``None`` for every name that is not in canonical form.
        check: raises unless ``new`` may follow ``base``; runs before every write.
    """

    resource: str
    directory: str
    boundary_key: str
    key: Callable[[int], str]
    parse: Callable[[str], int | None]
    encode: Callable[[T], bytes]
    decode: Callable[[Buffer, str], T]
    check: Callable[[T, T], None] = accept_anything
