"""Databases that are nothing but given versions of their manifest."""

from dataclasses import replace
from uuid import UUID

from shale.env import Env
from shale.protocol.manifest_store import ManifestStore, StoredManifest
from shale.protocol.versioned import Versioned
from shale.store.memory import MemoryStore
from shale.types import Checkpoint, Epoch, Manifest, ManifestId, WalId


async def stored_history(
    *versions: Manifest, store: MemoryStore | None = None, modified_ms: int | None = None
) -> StoredManifest:
    """Write these versions, beginning with version 1, and return the newest, which a listing says was written then."""
    env = Env.system()
    manifests = ManifestStore(store or MemoryStore(), "db", env)
    stored = await manifests.create_new(versions[0])
    for version in versions[1:]:
        await stored.update(Versioned(stored.id, version))
    newest = Versioned(stored.id, stored.value, modified_ms)
    return StoredManifest(manifests, newest, env)


def sign(epoch: int, *, expire_s: int = 0, fields: str = "host=a") -> Checkpoint:
    """Return the checkpoint of a writer, its sign of life."""
    return Checkpoint(
        id=UUID(int=epoch), manifest_id=ManifestId(3), name=f"writer:{epoch}?{fields}", expire_s=expire_s, create_s=50
    )


def pin(number: int) -> Checkpoint:
    """Return a checkpoint of a reader or an administrator."""
    return Checkpoint(id=UUID(int=1000 + number), manifest_id=ManifestId(3))


LIVE = Manifest(
    writer_epoch=Epoch(4), next_wal_sst_id=WalId(7), replay_after_wal_id=WalId(4), checkpoints=(sign(4), pin(0))
)
"""A writer that is running."""
CLOSED = replace(LIVE, next_wal_sst_id=WalId(9), checkpoints=(pin(0),))
"""The step after it: a clean close."""
