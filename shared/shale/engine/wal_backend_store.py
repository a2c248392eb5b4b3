"""The files of a WAL backend as the objects of a store."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Mapping, Sequence
from typing import Final, TypeVar

from shale.core.bytes_like import BytesLike
from shale.errors import AlreadyExists, CorruptionError, InvalidRequestError, ShaleError, UnavailableError
from shale.format.names import parse_wal_key, wal_key
from shale.protocol.wal_completeness import BACKEND_SCHEME
from shale.protocol.wal_store import WRITER_EPOCH
from shale.store.memory import joined
from shale.store.port import (
    LIST_PAGE,
    OVERWRITE,
    PUT_ID,
    Create,
    ETag,
    GetResult,
    NotModified,
    ObjectMeta,
    PutMode,
)
from shale.store.wal_backend import WalBackend, WalEntry

T = TypeVar("T")

_WHOLE_FILES: Final = "a WAL backend takes whole WAL files, each created once"


class WalBackendStore:
    """The files of a backend as the objects of a WAL store."""

    supports_attributes = True

    def __init__(self, backend: WalBackend) -> None:
        name = backend.name
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or not name.isascii():
            raise InvalidRequestError(f"the name of the WAL backend is {name!r}: use letters, digits, '-', '_' and '.'")
        self._backend = backend
        self.url = BACKEND_SCHEME + name

    async def get(self, key: str) -> GetResult | None:
        """See ``ObjectStore``.  The time is not known here, and not needed."""
        path, wal_id = _place(key)
        data = await _translated(self._backend.read(path, wal_id))
        return None if data is None else GetResult(memoryview(data), ObjectMeta(key, len(data), 0))

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:  # noqa: ARG002
        """See ``ObjectStore``.  There are no etags."""
        return await self.get(key)

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        found = await self.get(key)
        if found is None:
            return None
        if end > found.meta.size:
            raise CorruptionError(f"the file has {found.meta.size} bytes", path=key, offset=found.meta.size)
        return found.data[start:end]

    async def head(self, key: str) -> ObjectMeta | None:
        """See ``ObjectStore``."""
        path, wal_id = _place(key)
        entry = await _translated(self._backend.stat(path, wal_id))
        return None if entry is None else _meta(path, entry)

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """See ``ObjectStore``; only for ``CREATE``."""
        if not isinstance(mode, Create):
            raise InvalidRequestError(_WHOLE_FILES)
        path, wal_id = _place(key)
        given = attributes or {}
        epoch = int(given[WRITER_EPOCH]) if WRITER_EPOCH in given else None
        put = self._backend.put(path, wal_id, joined(data), epoch=epoch, put_id=given.get(PUT_ID, ""))
        if not await _translated(put):
            raise AlreadyExists(f"{key} exists")
        return None

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:  # noqa: ARG002
        """See ``ObjectStore``; WAL files are put whole."""
        raise InvalidRequestError(_WHOLE_FILES)

    async def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        await self.delete_many([key])

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``."""
        return [meta async for page in self.list_pages(prefix) for meta in page]

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ``ObjectStore``.  A database has no other objects here, so its whole path gives its WAL, too."""
        path = _path(prefix)
        found = parse_wal_key(path, after)
        last_id = 0 if found is None else int(found)
        while entries := await _translated(self._backend.list(path, after=last_id, limit=LIST_PAGE)):
            last_id = entries[-1].id
            yield [_meta(path, entry) for entry in entries]

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """See ``ObjectStore``."""
        by_path: dict[str, list[int]] = {}
        for path, wal_id in map(_place, keys):
            by_path.setdefault(path, []).append(wal_id)
        errors: dict[str, ShaleError] = {}
        for path, wal_ids in by_path.items():
            try:
                await _translated(self._backend.delete(path, wal_ids))
            except ShaleError as error:
                errors.update((wal_key(path, wal_id), error) for wal_id in wal_ids)
        return errors

    async def copy(self, source: str, destination: str) -> None:  # noqa: ARG002
        """See ``ObjectStore``; copies of WAL files are read and put."""
        raise InvalidRequestError(_WHOLE_FILES)

    async def aclose(self) -> None:
        """See ``ObjectStore``.  The caller closes the backend."""


async def _translated(call: Awaitable[T]) -> T:
    """Await a method of a backend; an ``OSError`` means that its storage did not answer."""
    try:
        return await call
    except OSError as error:
        raise UnavailableError(f"the WAL backend failed: {error!r}") from error


def _path(prefix: str) -> str:
    """Return the path of the database whose WAL, or whose objects, are below a prefix."""
    path = prefix.removesuffix("/")
    return "" if path == "wal" else path.removesuffix("/wal")


def _place(key: str) -> tuple[str, int]:
    path = _path(key.rpartition("/")[0])
    wal_id = parse_wal_key(path, key)
    if wal_id is None:
        raise InvalidRequestError(f"{key} is no WAL file: {_WHOLE_FILES}")
    return path, int(wal_id)


def _meta(path: str, entry: WalEntry) -> ObjectMeta:
    attributes = {PUT_ID: entry.put_id}
    if entry.epoch is not None:
        attributes[WRITER_EPOCH] = str(entry.epoch)
    return ObjectMeta(wal_key(path, entry.id), entry.size, entry.written_ms, attributes=attributes)
