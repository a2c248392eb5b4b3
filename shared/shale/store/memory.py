"""A store in memory: for tests, simulations and ``memory:///`` databases.

Every operation takes one step of the event loop, so conditional puts are linearizable.  Buffers are copied, so callers
may reuse them.
"""

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.env import Clock, SystemClock
from shale.errors import AlreadyExists, CorruptionError, NotFoundError, Precondition, ShaleError
from shale.store.port import (
    LIST_PAGE,
    NOT_MODIFIED,
    OVERWRITE,
    Create,
    ETag,
    GetResult,
    NotModified,
    ObjectMeta,
    PutMode,
    Update,
)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object and what a listing tells about it."""

    data: bytes
    meta: ObjectMeta


class MemoryStore:
    """Objects in a dictionary.  ``clock`` gives ``last_modified_ms``."""

    def __init__(
        self, clock: Clock | None = None, *, url: str = "memory:///", supports_attributes: bool = True
    ) -> None:
        self._clock = clock if clock is not None else SystemClock()
        self._url = url
        self._supports_attributes = supports_attributes
        self.objects: dict[str, StoredObject] = {}
        """All objects by key; tests inspect and damage them here."""
        self._puts = 0

    @property
    def url(self) -> str:
        """See ``ObjectStore``."""
        return self._url

    @property
    def supports_attributes(self) -> bool:
        """See ``ObjectStore``."""
        return self._supports_attributes

    async def get(self, key: str) -> GetResult | None:
        """See ``ObjectStore``."""
        found = self.objects.get(key)
        return None if found is None else GetResult(memoryview(found.data), found.meta)

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:
        """See ``ObjectStore``."""
        found = self.objects.get(key)
        if found is None:
            return None
        return NOT_MODIFIED if found.meta.etag == etag else GetResult(memoryview(found.data), found.meta)

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        found = self.objects.get(key)
        if found is None:
            return None
        if end > len(found.data):
            raise CorruptionError(
                f"the object ends at byte {len(found.data)}, bytes {start} to {end} were wanted",
                path=key,
                offset=len(found.data),
            )
        return memoryview(found.data)[start:end]

    async def head(self, key: str) -> ObjectMeta | None:
        """See ``ObjectStore``."""
        found = self.objects.get(key)
        return None if found is None else found.meta

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """See ``ObjectStore``."""
        found = self.objects.get(key)
        if isinstance(mode, Create) and found is not None:
            raise AlreadyExists(f"{key} exists")
        if isinstance(mode, Update) and (found is None or found.meta.etag != mode.etag):
            raise Precondition(f"{key} is {'gone' if found is None else 'of another version'}")
        return self.write(key, joined(data), attributes)

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``."""
        collected = [bytes(part) async for part in parts]
        self.write(key, b"".join(collected), None)

    async def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        self.objects.pop(key, None)

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``."""
        found = [(key, value.meta) for key, value in self.objects.items() if key.startswith(prefix)]
        return [_listed(meta) for _, meta in sorted(found)]

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ``ObjectStore``.  The keys are read once, their metadata page by page."""
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        for first in range(0, len(keys), LIST_PAGE):
            found = (self.objects.get(key) for key in keys[first : first + LIST_PAGE])
            page = [_listed(each.meta) for each in found if each is not None]
            if page:
                yield page

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """See ``ObjectStore``."""
        for key in keys:
            self.objects.pop(key, None)
        return {}

    async def copy(self, source: str, destination: str) -> None:
        """See ``ObjectStore``."""
        found = self.objects.get(source)
        if found is None:
            raise NotFoundError(f"{source} does not exist")
        self.write(destination, found.data, found.meta.attributes)

    async def aclose(self) -> None:
        """See ``ObjectStore``.  The objects stay until the store object is deleted."""

    def write(self, key: str, data: bytes, attributes: Mapping[str, str] | None = None) -> ETag:
        """Store an object at once, whatever was there; ``put`` without its condition and without a wait."""
        self._puts += 1
        etag = f'"{self._puts:x}"'
        kept = dict(attributes or {}) if self._supports_attributes else None
        self.objects[key] = StoredObject(data, ObjectMeta(key, len(data), self._clock.now_ms(), etag, kept))
        return etag


def _listed(meta: ObjectMeta) -> ObjectMeta:
    """Return metadata without attributes, as in a listing."""
    return ObjectMeta(meta.key, meta.size, meta.last_modified_ms, meta.etag)


def joined(data: BytesLike | Sequence[BytesLike]) -> bytes:
    """Return the body of a put as ``bytes``, copied only if it is not ``bytes`` already."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    return b"".join(data)
