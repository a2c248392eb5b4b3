"""The connected database of an ``Admin``, which its parts share."""

from typing import Self

from shale.core.lazy_dataclass import dataclass
from shale.engine.location import DatabaseStores
from shale.env import Env
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import require_not_destroyed
from shale.protocol.options import ProtocolOptions
from shale.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminContext:
    """One database.  The parts of an ``Admin`` share its manifest and compactions stores with their caches."""

    stores: DatabaseStores
    root: str
    env: Env
    metrics: Metrics
    manifests: ManifestStore
    compactions: CompactionsStore
    component: str

    @classmethod
    def of(cls, stores: DatabaseStores, root: str, env: Env, metrics: Metrics, *, component: str = "admin") -> Self:
        """Return the database at ``root``; nothing is read yet.

        Args:
            component: the metric label.
        """
        options = ProtocolOptions(component=component, manifest_write_version=stores.manifest_write_version)
        return cls(
            stores=stores,
            root=root,
            env=env,
            metrics=metrics,
            manifests=ManifestStore(stores.main, root, env, metrics, options),
            compactions=CompactionsStore(stores.main, root, env, metrics, options),
            component=component,
        )

    async def require_not_destroyed(self) -> None:
        """Check that the database is not destroyed.

        Raises:
            InvalidDbState: it is marked as destroyed.
        """
        await require_not_destroyed(self.stores.main, self.root)
