"""``admin.states``: what is stored about a database, version by version.  Nothing here writes."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from shale.admin.place import AdminPlace
from shale.protocol.versioned import T, Versioned, VersionMeta
from shale.protocol.versioned_store import VersionedStore
from shale.types import Compaction, Compactions, Manifest, Ulid


@dataclass(frozen=True, slots=True, kw_only=True)
class StateView:
    """What a compactor goes by.  The manifest was read last: it has every result that ``compactions`` calls finished.

    ``compactions`` is ``None`` where no compactor was ever started.
    """

    compactions: Versioned[Compactions] | None
    manifest: Versioned[Manifest]


class StateAdmin:
    """Manifests and compactions files of one database."""

    def __init__(self, place: AdminPlace) -> None:
        self._place = place

    async def manifest(self, id: int | None = None) -> Versioned[Manifest] | None:  # noqa: A002 - the protocol's name
        """The newest manifest, or a stored version; ``None`` if there is no such one.

        Raises:
            CorruptionError: it is damaged.
        """
        return await _read(self._place.manifests, id)

    def manifests(self, start: int | None = None, end: int | None = None) -> AsyncIterator[Versioned[Manifest]]:
        """The stored manifests from ``start`` on and below ``end``, ascending, read one after the other."""
        return _read_all(self._place.manifests, start, end)

    async def manifest_versions(self, start: int | None = None, end: int | None = None) -> tuple[VersionMeta, ...]:
        """Which manifests are stored from ``start`` on and below ``end``: id, time and size, ascending."""
        return await _between(self._place.manifests, start, end)

    async def compactions(self, id: int | None = None) -> Versioned[Compactions] | None:  # noqa: A002
        """The newest compactions file, or a stored version; ``None`` if there is no such one.

        Raises:
            CorruptionError: it is damaged.
        """
        return await _read(self._place.compactions, id)

    def compactions_files(
        self, start: int | None = None, end: int | None = None
    ) -> AsyncIterator[Versioned[Compactions]]:
        """The stored compactions files from ``start`` on and below ``end``, ascending, read one after the other."""
        return _read_all(self._place.compactions, start, end)

    async def compactions_versions(self, start: int | None = None, end: int | None = None) -> tuple[VersionMeta, ...]:
        """Which compactions files are stored; see ``manifest_versions``."""
        return await _between(self._place.compactions, start, end)

    async def compaction(self, compaction_id: Ulid, *, file_id: int | None = None) -> Compaction | None:
        """One compaction as the newest compactions file, or a stored version, has it; ``None`` if it has not."""
        found = await self.compactions(file_id)
        return None if found is None else found.value.get(compaction_id)

    async def state_view(self) -> StateView:
        """The newest compactions, and the manifest that was read after them.

        Raises:
            LatestRecordMissing: there is no database.
        """
        compactions = await self.compactions()
        return StateView(compactions=compactions, manifest=await self._place.manifests.read_latest())


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
        if value is not None:  # else it was collected since the listing
            yield Versioned(meta.id, value)
