"""Retained old versions of manifest and compactions, for status reports; best effort."""

from dataclasses import replace
from functools import partial

from shale.compaction.history import CompactionsVersion
from shale.concurrency.gather import gather
from shale.errors import CorruptionError
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import T, VersionMeta
from shale.protocol.versioned_store import VersionedStore
from shale.types import Compaction, Compactions, Manifest, Sst, Ulid

CLOCK_SLACK_MS = 60_000
"""Tolerated clock skew between the process that generated a ULID and the store."""

VERSIONS_MAX = 512
VERSIONS_BYTES_MAX = 32 * 1024 * 1024
"""Each version has the whole progress of a large compaction."""

MANIFESTS_MAX = 16


class CompactionsHistory:
    """Retained versions of the compactions file; each is read once."""

    def __init__(self, store: CompactionsStore) -> None:
        self._store = store
        self._known: dict[int, CompactionsVersion] = {}
        self._outputs: dict[Ulid, tuple[Sst, ...]] = {}

    async def since(self, ms: int) -> tuple[CompactionsVersion, ...]:
        """Return the versions written since ``ms``, ascending; of very many, only the first and the last ones.

        The first ones show how a compaction started and the last ones its current state; those in between are the
        least useful.
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

    async def _read(self, meta: VersionMeta) -> CompactionsVersion | None:
        value = await _read_if_whole(self._store, meta.id)
        return None if value is None else CompactionsVersion.of(meta.id, meta.last_modified_ms, self._sharing(value))

    def _sharing(self, compactions: Compactions) -> Compactions:
        """Share one copy of each result in memory: a large result is repeated in each version."""
        return replace(compactions, entries=tuple(self._with_shared_outputs(entry) for entry in compactions.entries))

    def _with_shared_outputs(self, entry: Compaction) -> Compaction:
        if not entry.output_ssts:
            return entry
        known = self._outputs.setdefault(entry.id, entry.output_ssts)
        return replace(entry, output_ssts=known) if known == entry.output_ssts else entry


class ManifestHistory:
    """Retained versions of the manifest around a time."""

    def __init__(self, store: ManifestStore) -> None:
        self._store = store

    async def before(self, ms: int) -> tuple[Manifest, ...]:
        """Return the last versions written up to ``ms``, at most ``MANIFESTS_MAX``, newest first."""
        listed = await self._store.list_versions()
        return await self._read([meta for meta in listed if meta.last_modified_ms <= ms][-MANIFESTS_MAX:][::-1])

    async def since(self, ms: int) -> tuple[Manifest, ...]:
        """Return the newest version at ``ms`` and those after it, at most ``MANIFESTS_MAX``, ascending."""
        listed = await self._store.list_versions()
        earlier = [meta for meta in listed if meta.last_modified_ms < ms]
        later = [meta for meta in listed if meta.last_modified_ms >= ms]
        return await self._read([*earlier[-1:], *later[: MANIFESTS_MAX - 1]])

    async def _read(self, wanted: list[VersionMeta]) -> tuple[Manifest, ...]:
        found = await gather([partial(_read_if_whole, self._store, meta.id) for meta in wanted]) if wanted else []
        return tuple(manifest for manifest in found if manifest is not None)


def from_both_ends(metas: list[VersionMeta]) -> list[VersionMeta]:
    """Choose versions alternately from the end and the start, within the limits of number and bytes."""
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
        return None  # A corrupt old version only makes the report less complete.
