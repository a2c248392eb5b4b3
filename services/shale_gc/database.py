"""The database that a collector works on: its namespaces, and which manifests of it somebody refers to."""

from dataclasses import dataclass
from typing import Self

from shale.env import Env
from shale.errors import ManifestMissing
from shale.format.names import compacted_prefix, parse_sst_key, sst_key
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.protocol.versioned import Versioned
from shale.protocol.wal_store import WalStore
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Manifest, Ulid
from shale_gc.planner import SstFile

log = get_logger("gc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """One database, as its collector sees it."""

    store: ObjectStore
    root: str
    env: Env
    metrics: Metrics
    protocol: ProtocolOptions
    manifests: ManifestStore
    compactions: CompactionsStore
    wal: WalStore

    @classmethod
    def at(cls, store: ObjectStore, root: str, env: Env, metrics: Metrics, protocol: ProtocolOptions) -> Self:
        """The database at ``root``, whether or not it is there."""
        return cls(
            store=store,
            root=root,
            env=env,
            metrics=metrics,
            protocol=protocol,
            manifests=ManifestStore(store, root, env, metrics, protocol),
            compactions=CompactionsStore(store, root, env, metrics, protocol),
            wal=WalStore(store, root, env),
        )

    async def checkpointed(self, latest: Versioned[Manifest]) -> dict[int, Manifest]:
        """The manifests that the latest one's checkpoints keep, by id.

        Raises:
            ManifestMissing: one is gone, so nobody can tell what it needs.
        """
        manifests: dict[int, Manifest] = {}
        for manifest_id in sorted({checkpoint.manifest_id for checkpoint in latest.value.checkpoints}):
            manifest = latest.value if manifest_id == latest.id else await self.manifests.read(manifest_id)
            if manifest is None:
                raise ManifestMissing(manifest_id)
            manifests[manifest_id] = manifest
        return manifests

    async def list_ssts(self) -> list[SstFile]:
        """Every compacted SST below this root, ascending by id; other names are kept and warned about."""
        files = []
        for meta in await self.store.list(compacted_prefix(self.root)):
            sst_id = parse_sst_key(self.root, meta.key)
            if sst_id is not None:
                files.append(SstFile(sst_id, meta.size))
            elif "#" not in meta.key:  # a local store's staging file is nobody's mistake
                log.warning(Event.SEQUENCED_LIST_UNKNOWN_FILE, object=meta.key)
        return sorted(files)

    async def delete_sst(self, sst_id: int) -> None:
        """Delete one compacted SST."""
        await self.store.delete(sst_key(self.root, Ulid(sst_id)))
