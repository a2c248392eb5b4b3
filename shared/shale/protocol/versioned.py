"""Versions of a value, where they are kept, and what can be done with them: the terms of the generic protocol."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from functools import partial
from typing import Generic, Protocol, Self, TypeVar, overload

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.format.names import below, boundary_key
from shale.protocol.instruments import UpdateInstruments
from shale.protocol.options import ProtocolOptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    """A value and the id of the file that holds it.

    ``modified_ms``: when the file was written, by the store's clock; ``None`` if no listing told it.
    """

    id: int
    value: T
    modified_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class VersionMeta:
    """A version as listed.  ``last_modified_ms`` is the store's clock."""

    id: int
    last_modified_ms: int
    size: int


def accept_anything(_base: object, _new: object) -> None:
    """Accept every step: the check of a namespace without invariants."""


def is_never_lossless(_value: object) -> bool:
    """Return ``False``: reading back what was written may give another value."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace(Generic[T]):
    """One directory of numbered files, each a complete snapshot of one value.

    Args:
        resource: its name in logs and metrics, ``manifest`` or ``compactions``.
        directory: prefix of a listing, ending in ``/``.
        boundary_key: the object that records which ids may have been deleted.
        key: id to key.
        parse: key to id; ``None`` for names that are not in canonical form.
        check: raises unless ``new`` may follow ``base``; runs before every write.
        accept: raises unless this process may use the newest version, given with its key; runs when it is decoded.
        is_lossless: whether a value is read back as it was written; a store then does not decode what it wrote.
    """

    resource: str
    directory: str
    boundary_key: str
    key: Callable[[int], str]
    parse: Callable[[str], int | None]
    encode: Callable[[T], bytes]
    decode: Callable[[BytesLike, str], T]
    check: Callable[[T, T], None] = accept_anything
    accept: Callable[[T, str], None] = accept_anything
    is_lossless: Callable[[T], bool] = is_never_lossless


def database_namespace(
    root: str,
    resource: str,
    *,
    key: Callable[[str, int], str],
    parse: Callable[[str, str], int | None],
    encode: Callable[[T], bytes],
    decode: Callable[[BytesLike, str], T],
    check: Callable[[T, T], None] = accept_anything,
) -> Namespace[T]:
    """Return the namespace of ``resource`` in the database at ``root``, which ``key`` and ``parse`` take first."""
    return Namespace(
        resource=resource,
        directory=below(root, f"{resource}/"),
        boundary_key=boundary_key(root, resource),
        key=partial(key, root),
        parse=partial(parse, root),
        encode=encode,
        decode=decode,
        check=check,
    )


class VersionList(Sequence[VersionMeta]):
    """A listing: versions ascending by id, in three columns of 24 bytes a version, where objects would take 240."""

    __slots__ = ("_ids", "_modified_ms", "_sizes")

    def __init__(self, versions: Iterable[VersionMeta] = ()) -> None:
        self._ids = array("Q")
        self._modified_ms = array("q")
        self._sizes = array("Q")
        for version in versions:
            self.append(version)

    def append(self, version: VersionMeta) -> None:
        """Add one at the end."""
        self._ids.append(version.id)
        self._modified_ms.append(version.last_modified_ms)
        self._sizes.append(version.size)

    def where(self, keep: Callable[[VersionMeta], bool]) -> Self:
        """Return the versions for which ``keep`` is true, in the same order."""
        return type(self)(version for version in self if keep(version))

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[VersionMeta]:
        return map(VersionMeta, self._ids, self._modified_ms, self._sizes)

    @overload
    def __getitem__(self, index: int) -> VersionMeta: ...
    @overload
    def __getitem__(self, index: slice) -> list[VersionMeta]: ...
    def __getitem__(self, index: int | slice) -> VersionMeta | list[VersionMeta]:
        if isinstance(index, slice):
            return list(map(VersionMeta, self._ids[index], self._modified_ms[index], self._sizes[index]))
        return VersionMeta(self._ids[index], self._modified_ms[index], self._sizes[index])


class VersionedValues(Protocol[T]):
    """The versions of one value, as a holder of one of them needs them (``shale.protocol.versioned_store``)."""

    namespace: Namespace[T]
    options: ProtocolOptions
    updates: UpdateInstruments

    async def read(self, file_id: int) -> T | None:
        """Return one version; ``None`` if it does not exist."""
        ...

    async def try_read_latest(self) -> Versioned[T] | None:
        """Return the newest committed version, if there is one."""
        ...

    async def read_base(self) -> Versioned[T] | None:
        """Return the newest version, not yet compared with the boundary."""
        ...

    async def commit(self, base_id: int | None, value: T) -> Versioned[T]:
        """Write the version after ``base_id``."""
        ...

    def on_other_commit(self, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Call a function after each commit by other parts of this process, until the context ends."""
        ...

    async def has_lost_history(self, file_id: int) -> bool:
        """Return whether every version before this one is gone, and no collector removed them."""
        ...

    async def may_be_duplicate(self, file_id: int) -> bool:
        """Return whether a version may repeat the one before it."""
        ...
