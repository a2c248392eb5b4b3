"""Shows a backup as the database that a restore would make, without copying anything: for checks and readers."""

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from shale.backup.backup_store import BackupStore
from shale.backup.document import Backup, ObjectKind
from shale.backup.planner import joined_wal
from shale.backup.restored_manifest import restored
from shale.backup.wal_end import WalEnd
from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError, ShaleError
from shale.format.manifest import encode_manifest
from shale.format.names import manifest_key, sst_key, visible_range_key, wal_key
from shale.store.port import (
    NOT_MODIFIED,
    OVERWRITE,
    ETag,
    GetResult,
    NotModified,
    ObjectMeta,
    ObjectStore,
    PutMode,
)
from shale.types import CasMode, ExclusiveModes, Manifest, Ulid

VIEW_ROOT = "backup"
"""The path of the database in the view."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """An object of the view: bytes, or the key of a copy and its size."""

    data: bytes | None
    copy: str
    size: int


class RestoredView:
    """A store with one database at ``VIEW_ROOT``; every write is refused."""

    def __init__(self, store: ObjectStore, objects: Mapping[str, _Shown], modified_ms: int) -> None:
        self._store = store
        self._objects = dict(sorted(objects.items()))
        self._modified_ms = modified_ms

    @classmethod
    def of(cls, source: BackupStore, backup: Backup, manifest: Manifest) -> "RestoredView":
        """Return the view of a backup; ``manifest``: that of the backup."""
        end = WalEnd(files=joined_wal(backup, ()))
        shown: dict[str, _Shown] = {}
        for found in backup.of_kind(ObjectKind.SST):
            sst_id = Ulid.parse(found.name)
            assert sst_id is not None, "the document was checked when it was read"
            shown[sst_key(VIEW_ROOT, sst_id)] = _Shown(None, source.key(found.key), found.size)
        for number, found in end.files.items():
            shown[wal_key(VIEW_ROOT, number)] = _Shown(None, source.key(found.key), found.size)
        for found in backup.of_kind(ObjectKind.VISIBLE_RANGE):
            shown[visible_range_key(VIEW_ROOT)] = _Shown(None, source.key(found.key), found.size)
        data = encode_manifest(_with_wal_in_view(restored(manifest, end, CasMode.NATIVE)))
        shown[manifest_key(VIEW_ROOT, 1)] = _Shown(data, "", len(data))
        return cls(source.store, shown, backup.completed_ms)

    @property
    def url(self) -> str:
        """See ``ObjectStore``."""
        return self._store.url

    @property
    def supports_attributes(self) -> bool:
        """See ``ObjectStore``."""
        return False

    async def get(self, key: str) -> GetResult | None:
        """See ``ObjectStore``."""
        shown = self._objects.get(key)
        if shown is None:
            return None
        if shown.data is not None:
            return GetResult(memoryview(shown.data), self._meta(key, shown))
        found = await self._store.get(shown.copy)
        return None if found is None else GetResult(found.data, self._meta(key, shown))

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:
        """See ``ObjectStore``.  Nothing changes."""
        return NOT_MODIFIED if key in self._objects else None

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        shown = self._objects.get(key)
        if shown is None:
            return None
        if shown.data is not None:
            return memoryview(shown.data)[start:end]
        return await self._store.get_range(shown.copy, start, end)

    async def head(self, key: str) -> ObjectMeta | None:
        """See ``ObjectStore``."""
        shown = self._objects.get(key)
        return None if shown is None else self._meta(key, shown)

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``."""
        return [self._meta(key, shown) for key, shown in self._objects.items() if key.startswith(prefix)]

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ``ObjectStore``."""
        page = [meta for meta in await self.list(prefix) if meta.key > after]
        if page:
            yield page

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """See ``ObjectStore``; refused."""
        self._refuse(key)

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``; refused."""
        self._refuse(key)

    async def delete(self, key: str) -> None:
        """See ``ObjectStore``; refused."""
        self._refuse(key)

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """See ``ObjectStore``; refused."""
        self._refuse(", ".join(keys[:1]))

    async def copy(self, source: str, destination: str) -> None:
        """See ``ObjectStore``; refused."""
        self._refuse(destination)

    async def aclose(self) -> None:
        """See ``ObjectStore``.  The store of the backups stays open."""

    def _meta(self, key: str, shown: _Shown) -> ObjectMeta:
        return ObjectMeta(key, shown.size, self._modified_ms, etag=key)

    def _refuse(self, key: str) -> NoReturn:
        raise InvalidRequestError(f"{key}: a backup is read only; restore it to write")


def _with_wal_in_view(manifest: Manifest) -> Manifest:
    """Return the manifest of the view, which has the WAL files of a separate WAL store or backend, too."""
    modes = manifest.exclusive
    if modes is not None:
        modes = replace(modes, wal_backend=None)
    return replace(
        manifest,
        initialized=True,
        wal_object_store_uri=None,
        exclusive=None if modes == ExclusiveModes() else modes,
    )
