"""The database that a collector works on: its namespaces, and the manifests that its checkpoints refer to."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Self

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import ManifestMissing, ShaleError
from shale.format.names import (
    compacted_prefix,
    compaction_records_prefix,
    compactions_prefix,
    manifest_prefix,
    parse_sst_key,
    wal_prefix,
)
from shale.gc.options import Task
from shale.gc.plan import Candidate
from shale.gc.planner import SstFile
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.protocol.versioned import Versioned
from shale.protocol.wal_store import WalStore
from shale.store.port import ObjectStore
from shale.store.two_phase.store import two_phase_of
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Manifest, Tree

_PREFIXES: Mapping[Task, Sequence[Callable[[str], str]]] = {
    Task.MANIFEST: (manifest_prefix,),
    Task.WAL: (wal_prefix,),
    Task.WAL_FENCE: (wal_prefix,),
    Task.COMPACTED: (compacted_prefix,),
    Task.COMPACTIONS: (compactions_prefix, compaction_records_prefix),
    Task.STAGED: (manifest_prefix, compactions_prefix, wal_prefix),
}
log = get_logger("gc")


@dataclass(frozen=True, slots=True, kw_only=True)
class GcDatabase:
    """Stores and namespaces of one database."""

    store: ObjectStore
    wal_store: ObjectStore
    root: str
    env: Env
    metrics: Metrics
    protocol: ProtocolOptions
    manifests: ManifestStore
    compactions: CompactionsStore
    wal: WalStore

    @classmethod
    def at(
        cls,
        store: ObjectStore,
        root: str,
        env: Env,
        metrics: Metrics,
        protocol: ProtocolOptions,
        *,
        wal_store: ObjectStore | None = None,
    ) -> Self:
        """Return the database at ``root``, which need not exist; ``wal_store``: the store of its WAL, if separate."""
        wal_store = wal_store if wal_store is not None else store
        return cls(
            store=store,
            wal_store=wal_store,
            root=root,
            env=env,
            metrics=metrics,
            protocol=protocol,
            manifests=ManifestStore(store, root, env, metrics, protocol),
            compactions=CompactionsStore(store, root, env, metrics, protocol),
            wal=WalStore(wal_store, root),
        )

    @property
    def name(self) -> str:
        """Store URL and path, as messages and saved plans show it."""
        return self.store.url + "/" * (not self.store.url.endswith("/")) + self.root

    @property
    def has_own_wal_store(self) -> bool:
        """Whether the WAL is in a store of its own."""
        return self.wal_store is not self.store

    async def checkpointed(
        self, latest: Versioned[Manifest], *, trees: bool = True
    ) -> AsyncIterator[tuple[int, Manifest]]:
        """Yield the manifests that the checkpoints of ``latest`` name, each with its id.

        Args:
            trees: include the SSTs; without them a manifest is small enough to keep in memory.

        Raises:
            ManifestMissing: one is gone, so the objects that it needs are unknown.
        """
        for manifest_id in sorted({checkpoint.manifest_id for checkpoint in latest.value.checkpoints}):
            manifest = latest.value if manifest_id == latest.id else await self.manifests.read(manifest_id)
            if manifest is None:
                raise ManifestMissing(manifest_id)
            yield manifest_id, manifest if trees else replace(manifest, tree=Tree(), segments=())

    async def sst_pages(self) -> AsyncIterator[Sequence[SstFile]]:
        """Yield pages of the SSTs in ``compacted/``, ascending by id; warn about objects with other names."""
        async for page in self.store.list_pages(compacted_prefix(self.root)):
            files = []
            for meta in page:
                sst_id = parse_sst_key(self.root, meta.key)
                if sst_id is not None:
                    files.append(SstFile(sst_id, meta.size))
                elif "#" not in meta.key:  # a staging file of a local store is expected
                    log.warning(Event.SEQUENCED_LIST_UNKNOWN_FILE, object=meta.key)
            yield files

    async def existing(self, task: Task, keys: Collection[str]) -> AsyncIterator[str]:
        """Yield those ``keys`` that still exist, found by listing the namespaces of the task."""
        for prefix_of in _PREFIXES[task]:
            store = self.wal_store if prefix_of is wal_prefix else self.store
            # Also the staged objects of the two-phase mode, which its own listings leave out.
            two_phase = two_phase_of(store) if task is Task.STAGED else None
            listed = store if two_phase is None else two_phase.wrapped
            async for page in listed.list_pages(prefix_of(self.root)):
                for meta in page:
                    if meta.key in keys:
                        yield meta.key

    async def delete_objects(self, candidates: Sequence[Candidate]) -> Mapping[str, ShaleError]:
        """Delete objects of the main store; return the errors by key."""
        return await self.store.delete_many([each.key for each in candidates])

    async def delete_wal(self, candidates: Sequence[Candidate]) -> Mapping[str, ShaleError]:
        """Delete WAL files; return the errors by key."""
        return await self.wal_store.delete_many([each.key for each in candidates])
