"""The state that ``Db.open_from_checkpoint`` begins with."""

from uuid import UUID

from shale.clones.clone import create_clone
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.request import CloneRequest, CloneSource
from shale.core.lazy_dataclass import dataclass
from shale.engine.location import ConnectedDatabase
from shale.env import Env
from shale.protocol.checkpoints import require_checkpoint_reference
from shale.store.location import UrlOrPath, normalize_path
from shale.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class ParentCheckpoint:
    """A state of another database in the same store, for ``Db.open_from_checkpoint``.

    Args:
        path: the path of the other database.
        checkpoint: id or name of a checkpoint of it; ``None``: its newest state.

    Raises:
        InvalidRequestError: the path or the checkpoint is malformed.
    """

    path: UrlOrPath
    checkpoint: UUID | str | None = None

    def __post_init__(self) -> None:
        normalize_path(self.path)
        if self.checkpoint is not None:
            require_checkpoint_reference(self.checkpoint)

    async def create_clone(self, clone: ConnectedDatabase, env: Env, metrics: Metrics) -> None:
        """Create a clone of this state, or complete one that was interrupted; nothing happens if it is complete.

        Raises:
            CheckpointMissing: the checkpoint does not exist, or has expired.
            LatestRecordMissing: there is no database at the path of the parent.
            InvalidRequestError: the path of the clone has another database; the subclass says why.
        """
        checkpoint = None if self.checkpoint is None else require_checkpoint_reference(self.checkpoint)
        source = CloneSource(path=normalize_path(self.path), checkpoint=checkpoint)
        catalog = DatabaseCatalog(
            clone.store, env, metrics, clone.wal_store, clone.transformer, clone.manifest_write_version
        )
        await create_clone(catalog, CloneRequest(path=clone.root, sources=(source,)))
