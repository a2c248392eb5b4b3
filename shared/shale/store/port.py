"""The object-store port: what the protocols need from a store, and no more (docs/reference/protocol.md 0.2).

Keys are ``/``-joined strings relative to the store (a bucket, a container, a directory).  Every adapter gives
read-after-write, list-after-write and linearizable conditional puts per key.  Absence is a result (``None``), not an
error; every error is one of ``shale.errors``.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from shale.errors import ShaleError

ETag: TypeAlias = str

PUT_ID = "slatedbputid"
"""Name of the metadata that holds the id of a conditional put, as in SlateDB."""

LIST_PAGE = 1000
"""Objects in a page of a listing, and keys in one request to delete many: the limits of S3."""


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Put unconditionally."""


@dataclass(frozen=True, slots=True)
class Create:
    """Put only if the object does not exist; else ``AlreadyExists``."""


@dataclass(frozen=True, slots=True)
class Update:
    """Put only if the object still has this etag; else ``Precondition``."""

    etag: ETag


PutMode: TypeAlias = Overwrite | Create | Update
OVERWRITE = Overwrite()
CREATE = Create()


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """The metadata of an object.  ``last_modified_ms`` is by the store's clock."""

    key: str
    size: int
    last_modified_ms: int
    etag: ETag | None = None
    attributes: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class GetResult:
    """A whole object."""

    data: memoryview
    meta: ObjectMeta


@dataclass(frozen=True, slots=True)
class NotModified:
    """The object still has the etag of the caller."""


NOT_MODIFIED = NotModified()


class SstUploads(Protocol):
    """Where new SSTs go: a store, or one that keeps a copy in the disk cache, too."""

    async def put(self, key: str, data: BytesLike | Sequence[BytesLike]) -> object:
        """See ``ObjectStore``."""
        ...

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``."""
        ...


class ObjectStore(Protocol):
    """One bucket, container or directory."""

    @property
    def url(self) -> str:
        """The location of the store, without credentials, for errors and logs."""
        ...

    @property
    def supports_attributes(self) -> bool:
        """Whether objects keep user metadata, which tells a lost response from a conflict."""
        ...

    async def get(self, key: str) -> GetResult | None:
        """Read a whole object; ``None`` if it does not exist."""
        ...

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:
        """Read a whole object unless it still has this etag."""
        ...

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """Read bytes ``[start, end)``; ``None`` if there is no object.  A short response is ``CorruptionError``."""
        ...

    async def head(self, key: str) -> ObjectMeta | None:
        """Metadata with attributes; ``None`` if the object does not exist."""
        ...

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """Write a whole object in one request and return its etag, if the store has etags.

        Raises:
            AlreadyExists, Precondition: the condition of ``mode`` does not hold.
        """
        ...

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """Write an object of unknown size in bounded memory (multipart where the store has it), unconditionally.

        Nothing is visible under ``key`` before the last part is in; an error leaves nothing visible.
        """
        ...

    async def delete(self, key: str) -> None:
        """Delete; deleting a missing object is success."""
        ...

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """List the objects below ``prefix``, which ends in ``/``, ascending by key, without attributes."""
        ...

    def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """Yield the objects of ``list`` in pages of up to ``LIST_PAGE``, one page in memory; no page is empty.

        Pages are read one after the other; objects created or deleted during the listing may be in them or not.

        Args:
            after: only keys above this one.
        """
        ...

    async def delete_many(self, keys: Sequence[str]) -> "Mapping[str, ShaleError]":
        """Delete up to ``LIST_PAGE`` objects, in one request where the store can; a missing object is success.

        Returns:
            Errors by key; objects that are not in it are deleted.
        """
        ...

    async def copy(self, source: str, destination: str) -> None:
        """Copy, overwriting.  A missing source is ``NotFoundError``."""
        ...

    async def aclose(self) -> None:
        """Release sockets and threads; afterwards a process may exit at once."""
        ...


class LocalObject(Protocol):
    """An object on this machine that stays open until it is dropped."""

    def read_into(self, buffer: memoryview, start: int) -> int:
        """Fill ``buffer`` from byte ``start`` on and return the bytes read: fewer if the rest would wait or fail."""
        ...


OpenLocal: TypeAlias = Callable[[str], LocalObject | None]
"""Opens an object by its key; ``None``: it is missing, or reading it may wait."""


@runtime_checkable
class LocalReads(Protocol):
    """A store, or a wrapper of one, that may have objects on this machine.

    Reads without waiting are an extra: what they do not return, ``get_range`` does, with the error if there is one.
    """

    @property
    def open_local(self) -> OpenLocal | None:
        """The function that opens objects; ``None``: they are elsewhere."""
        ...


@runtime_checkable
class StagingFiles(Protocol):
    """A store that writes an object beside its key first, and hides what a killed process has left there."""

    async def list_staging(self, prefix: str) -> Sequence[ObjectMeta]:
        """List those files below ``prefix``, which ends in ``/``; ``delete_many`` deletes them."""
        ...


def open_local_of(store: ObjectStore) -> OpenLocal | None:
    """Return the function that opens objects of a store without waiting, if there is one."""
    return store.open_local if isinstance(store, LocalReads) else None
