"""Access to the databases of one store by path."""

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import InvalidDbState
from shale.format.blocks.transform import BlockTransformer
from shale.protocol.manifest_store import ManifestStore, StoredManifest
from shale.protocol.markers import require_not_destroyed
from shale.protocol.options import ProtocolOptions
from shale.protocol.wal_store import WalStore
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import MANIFEST_VERSION, ManifestVersion


@dataclass(frozen=True, slots=True)
class DatabaseCatalog:
    """All databases of a store by path.

    Args:
        wal_store: the store of their WALs, if separate.
        transformer: reverses the transformation of their blocks, if they are encrypted.
        manifest_write_version: the format of new manifests.
    """

    store: ObjectStore
    env: Env
    metrics: Metrics | None = None
    wal_store: ObjectStore | None = None
    transformer: BlockTransformer | None = None
    manifest_write_version: ManifestVersion = MANIFEST_VERSION

    def manifests(self, path: str) -> ManifestStore:
        """Return the manifests of a database."""
        options = ProtocolOptions(component="admin", manifest_write_version=self.manifest_write_version)
        return ManifestStore(self.store, path, self.env, self.metrics, options)

    def wal(self, path: str) -> WalStore:
        """Return the WAL of a database."""
        return WalStore(self.wal_store or self.store, path, transformer=self.transformer)

    async def load(self, path: str) -> StoredManifest:
        """Load the newest manifest of a database that others may borrow from.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidDbState: it is not initialized, or is being destroyed.
        """
        await require_not_destroyed(self.store, path)
        stored = await self.manifests(path).load()
        if not stored.value.initialized:
            raise InvalidDbState(f"the database at {path or '/'} is not initialised: a clone that was not completed")
        return stored
