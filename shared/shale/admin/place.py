"""The database that an ``Admin`` is about, connected: what each of its parts works with."""

from dataclasses import dataclass
from typing import Self

from shale.engine.where import Stores
from shale.env import Env
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import require_not_destroyed
from shale.protocol.options import ProtocolOptions
from shale.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPlace:
    """One database.  Its parts share the two stores of versions, and with them what those remember."""

    stores: Stores
    root: str
    env: Env
    metrics: Metrics
    manifests: ManifestStore
    compactions: CompactionsStore
    component: str

    @classmethod
    def of(cls, stores: Stores, root: str, env: Env, metrics: Metrics, *, component: str = "admin") -> Self:
        """The database at ``root``; nothing is read yet.

        Args:
            component: the label of metrics.
        """
        options = ProtocolOptions(component=component)
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
        """Return if the database may be changed.

        Raises:
            InvalidDbState: it is marked as destroyed.
        """
        await require_not_destroyed(self.stores.main, self.root)
