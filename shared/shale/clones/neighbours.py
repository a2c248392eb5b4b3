"""The databases of one store, as cloning reads and changes them."""

from dataclasses import dataclass

from shale.env import Env
from shale.errors import InvalidDbState, LatestRecordMissing
from shale.protocol.manifest_store import ManifestStore, StoredManifest
from shale.protocol.markers import require_not_destroyed
from shale.protocol.options import ProtocolOptions
from shale.protocol.wal_store import WalStore
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Every database by its path.  ``wal_store``: of clones and sources, if their WAL lives elsewhere."""

    store: ObjectStore
    env: Env
    metrics: Metrics | None = None
    wal_store: ObjectStore | None = None

    def manifests(self, path: str) -> ManifestStore:
        """The manifests of a database."""
        return ManifestStore(self.store, path, self.env, self.metrics, ProtocolOptions(component="admin"))

    def wal(self, path: str) -> WalStore:
        """The WAL of a database."""
        return WalStore(self.wal_store or self.store, path, self.env)

    async def load(self, path: str) -> StoredManifest:
        """The newest manifest of a database that others may borrow from.

        Raises:
            LatestRecordMissing: there is none.
            InvalidDbState: it is not initialised, or being destroyed.
        """
        await require_not_destroyed(self.store, path)
        try:
            stored = await self.manifests(path).load()
        except LatestRecordMissing as error:
            raise LatestRecordMissing(f"there is no database at {path or '/'}: {error}") from error
        if not stored.value.initialized:
            raise InvalidDbState(f"the database at {path or '/'} is not initialised: a clone that was not completed")
        return stored
