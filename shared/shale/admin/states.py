"""``admin.states``: read stored versions of manifest and compactions."""

from collections.abc import AsyncIterator

from shale.admin.context import AdminContext
from shale.core.lazy_dataclass import dataclass
from shale.protocol.versioned import T, Versioned, VersionMeta
from shale.protocol.versioned_store import VersionedStore
from shale.types import Compaction, Compactions, Manifest, Ulid


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorStateView:
    """The state of a compactor.  The manifest was read last: it has all results that ``compactions`` calls finished.

    ``compactions`` is ``None`` if no compactor was ever started.
    """

    compactions: Versioned[Compactions] | None
    manifest: Versioned[Manifest]


class StateAdmin:
    """Manifests and compactions files of one database."""

    def __init__(self, place: AdminContext) -> None:
        self._place = place

    async def manifest(self, id: int | None = None) -> Versioned[Manifest] | None:  # noqa: A002 - the protocol's name
        """Return the newest manifest, or the version ``id``; ``None`` if it does not exist.

        Raises:
            CorruptionError: it is corrupt.
        """
        return await _read(self._place.manifests, id)

    def manifests(self, start: int | None = None, end: int | None = None) -> AsyncIterator[Versioned[Manifest]]:
        """Yield the stored manifests from ``start`` to below ``end``, ascending."""
        return _read_all(self._place.manifests, start, end)

    async def manifest_versions(self, start: int | None = None, end: int | None = None) -> tuple[VersionMeta, ...]:
        """Return id, time and size of the stored manifests from ``start`` to below ``end``, ascending."""
        return await _between(self._place.manifests, start, end)

    async def compactions(self, id: int | None = None) -> Versioned[Compactions] | None:  # noqa: A002
        """Return the newest compactions file, or the version ``id``; ``None`` if it does not exist.

        Raises:
            CorruptionError: it is corrupt.
        """
        return await _read(self._place.compactions, id)

    def compactions_files(
        self, start: int | None = None, end: int | None = None
    ) -> AsyncIterator[Versioned[Compactions]]:
        """Yield the stored compactions files from ``start`` to below ``end``, ascending."""
        return _read_all(self._place.compactions, start, end)

    async def compactions_versions(self, start: int | None = None, end: int | None = None) -> tuple[VersionMeta, ...]:
        """Return id, time and size of the stored compactions files; see ``manifest_versions``."""
        return await _between(self._place.compactions, start, end)

    async def compaction(self, compaction_id: Ulid, *, file_id: int | None = None) -> Compaction | None:
        """Return one compaction of the newest compactions file, or of a stored version; ``None`` if missing."""
        found = await self.compactions(file_id)
        return None if found is None else found.value.get(compaction_id)

    async def state_view(self) -> CompactorStateView:
        """Return the newest compactions, and the manifest read after them.

        Raises:
            LatestRecordMissing: there is no database.
        """
        compactions = await self.compactions()
        return CompactorStateView(compactions=compactions, manifest=await self._place.manifests.read_latest())


async def _read(store: VersionedStore[T], id: int | None) -> Versioned[T] | None:  # noqa: A002
    if id is None:
        return await store.try_read_latest()
    value = await store.read(id)
    return None if value is None else Versioned(id, value)


async def _between(store: VersionedStore[T], start: int | None, end: int | None) -> tuple[VersionMeta, ...]:
    listed = await store.list_versions()
    return tuple(meta for meta in listed if (start is None or meta.id >= start) and (end is None or meta.id < end))


async def _read_all(store: VersionedStore[T], start: int | None, end: int | None) -> AsyncIterator[Versioned[T]]:
    for meta in await _between(store, start, end):
        value = await store.read(meta.id)
        if value is not None:  # else GC deleted it after the listing
            yield Versioned(meta.id, value)
