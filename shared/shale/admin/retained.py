"""Old versions of the metadata, as far as the collector has left them: best effort, for telling what has happened."""

from dataclasses import replace
from functools import partial

from shale.compaction.history import Snapshot
from shale.errors import CorruptionError
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import T, VersionMeta
from shale.protocol.versioned_store import VersionedStore
from shale.store.gather import gather
from shale.types import Compaction, Compactions, Manifest, Sst, Ulid

CLOCK_SLACK_MS = 60_000
"""How far the clock of whoever drew a ULID may be ahead of the store's."""

VERSIONS_MAX = 512
VERSIONS_BYTES_MAX = 32 * 1024 * 1024
"""Versions of a large compaction hold its whole progress, each of them."""

MANIFESTS_MAX = 16


class CompactionsHistory:
    """Versions of the compactions file; each is read once."""

    def __init__(self, store: CompactionsStore) -> None:
        self._store = store
        self._known: dict[int, Snapshot] = {}
        self._outputs: dict[Ulid, tuple[Sst, ...]] = {}

    async def since(self, ms: int) -> tuple[Snapshot, ...]:
        """The versions written since then, ascending; of very many the first and the last ones.

        A compaction begins soon after it was submitted, and what is there now shows how it is; what lies between
        tells the least.
        """
        listed = await self._store.list_versions()
        recent = [meta for meta in listed if meta.last_modified_ms >= ms - CLOCK_SLACK_MS]
        kept = {meta.id: self._known[meta.id] for meta in recent if meta.id in self._known}
        missing = from_both_ends([meta for meta in recent if meta.id not in kept])
        if missing:
            found = await gather([partial(self._read, meta) for meta in missing])
            kept.update((snapshot.file_id, snapshot) for snapshot in found if snapshot is not None)
        self._known = kept
        entries = [entry for each in kept.values() for entry in each.compactions.entries]
        self._outputs = {entry.id: entry.output_ssts for entry in entries if entry.output_ssts}
        return tuple(kept[file_id] for file_id in sorted(kept))

    async def _read(self, meta: VersionMeta) -> Snapshot | None:
        value = await _read_if_whole(self._store, meta.id)
        return None if value is None else Snapshot.of(meta.id, meta.last_modified_ms, self._sharing(value))

    def _sharing(self, compactions: Compactions) -> Compactions:
        """The value with one copy of each result in memory: a large one is listed in version after version."""
        return replace(compactions, entries=tuple(self._with_shared_outputs(entry) for entry in compactions.entries))

    def _with_shared_outputs(self, entry: Compaction) -> Compaction:
        if not entry.output_ssts:
            return entry
        known = self._outputs.setdefault(entry.id, entry.output_ssts)
        return replace(entry, output_ssts=known) if known == entry.output_ssts else entry


class ManifestHistory:
    """Versions of the manifest around a moment."""

    def __init__(self, store: ManifestStore) -> None:
        self._store = store

    async def before(self, ms: int) -> tuple[Manifest, ...]:
        """The versions that were the newest up to then, at most ``MANIFESTS_MAX``, the newest first."""
        listed = await self._store.list_versions()
        return await self._read([meta for meta in listed if meta.last_modified_ms <= ms][-MANIFESTS_MAX:][::-1])

    async def since(self, ms: int) -> tuple[Manifest, ...]:
        """The one that was the newest then and those after it, at most ``MANIFESTS_MAX``, ascending."""
        listed = await self._store.list_versions()
        earlier = [meta for meta in listed if meta.last_modified_ms < ms]
        later = [meta for meta in listed if meta.last_modified_ms >= ms]
        return await self._read([*earlier[-1:], *later[: MANIFESTS_MAX - 1]])

    async def _read(self, wanted: list[VersionMeta]) -> tuple[Manifest, ...]:
        found = await gather([partial(_read_if_whole, self._store, meta.id) for meta in wanted]) if wanted else []
        return tuple(manifest for manifest in found if manifest is not None)


def from_both_ends(metas: list[VersionMeta]) -> list[VersionMeta]:
    """The first and the last versions, by turns, as many as may be read at once."""
    chosen: list[VersionMeta] = []
    size = 0
    for turn in range(min(len(metas), VERSIONS_MAX)):
        meta = metas[-1 - turn // 2] if turn % 2 == 0 else metas[turn // 2]
        size += meta.size
        if size > VERSIONS_BYTES_MAX:
            break
        chosen.append(meta)
    return chosen


async def _read_if_whole(store: VersionedStore[T], file_id: int) -> T | None:
    try:
        return await store.read(file_id)
    except CorruptionError:
        return None  # A damaged version of the past takes some of the story away, and nothing else.
