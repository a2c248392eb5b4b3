"""The object-store port: what the protocols need from a store, and no more (docs/protocol.md 0.2).

Keys are ``/``-joined strings relative to the store (a bucket, a container, a directory).  Every adapter gives
read-after-write, list-after-write and linearizable conditional puts per key.  Absence is a result (``None``), not an
error; every error is one of ``shale.errors``.
"""

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from shale.errors import ShaleError

Buffer: TypeAlias = bytes | bytearray | memoryview
ETag: TypeAlias = str

PUT_ID = "slatedbputid"
"""Metadata name under which a conditional put carries its own id, as SlateDB does."""

LIST_PAGE = 1000
"""Objects in a page of a listing, and keys in one request to delete many: what S3 gives and takes at once."""


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Put whatever is there."""


@dataclass(frozen=True, slots=True)
class Create:
    """Put only if the key is free; else ``AlreadyExists``."""


@dataclass(frozen=True, slots=True)
class Update:
    """Put only if the object still has this etag; else ``Precondition``."""

    etag: ETag


PutMode: TypeAlias = Overwrite | Create | Update
OVERWRITE = Overwrite()
CREATE = Create()


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """What a listing or a HEAD tells.  ``last_modified_ms`` is the store's clock."""

    key: str
    size: int
    last_modified_ms: int
    etag: ETag | None = None
    attributes: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Got:
    """A whole object."""

    data: memoryview
    meta: ObjectMeta


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A conditional GET met the version the caller has."""


UNCHANGED = Unchanged()


class ObjectStore(Protocol):
    """One bucket, container or directory."""

    @property
    def url(self) -> str:
        """Where the store is, without credentials; for messages and logs."""
        ...

    @property
    def supports_attributes(self) -> bool:
        """Whether objects keep user metadata, so that a lost answer can be told from a conflict."""
        ...

    async def get(self, key: str) -> Got | None:
        """Read a whole object; ``None`` if it is not there."""
        ...

    async def get_if_changed(self, key: str, etag: ETag) -> Got | Unchanged | None:
        """Read a whole object unless it still has this etag."""
        ...

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """Read bytes ``[start, end)``; ``None`` if the object is not there.  A short answer is ``CorruptionError``."""
        ...

    async def head(self, key: str) -> ObjectMeta | None:
        """Metadata with attributes; ``None`` if the object is not there."""
        ...

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """Write a whole object in one request and return its etag, if the store has etags.

        Raises:
            AlreadyExists, Precondition: the condition of ``mode`` does not hold.
        """
        ...

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> None:
        """Write an object of unknown size in bounded memory (multipart where the store has it), unconditionally.

        Nothing is visible under ``key`` before the last part is in; an error leaves nothing visible.
        """
        ...

    async def delete(self, key: str) -> None:
        """Delete; deleting a missing object is success."""
        ...

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """Every object whose key begins with ``prefix`` (which ends in ``/``), ascending by key, without attributes."""
        ...

    def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """As ``list``, up to ``LIST_PAGE`` objects at a time and no more of them in memory; no page is empty.

        Pages are read one after the other: what comes or goes meanwhile may be in them or not.

        Args:
            after: only keys behind this one.
        """
        ...

    async def delete_many(self, keys: Sequence[str]) -> "Mapping[str, ShaleError]":
        """Delete up to ``LIST_PAGE`` objects, in one request where the store has one; a missing object is success.

        Returns:
            what went wrong, by key; objects that are not in it are gone.
        """
        ...

    async def copy(self, source: str, destination: str) -> None:
        """Copy, overwriting.  A missing source is ``NotFoundError``."""
        ...

    async def aclose(self) -> None:
        """Release sockets and threads; returns when a process may end at once."""
        ...
