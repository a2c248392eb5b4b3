"""Markers of databases that are being, or are going to be, destroyed (docs/protocol.md 8.8)."""

from shale.errors import InvalidDbState
from shale.format.names import deleting_key, destroyed_key
from shale.store.port import ObjectStore


async def is_destroyed(store: ObjectStore, root: str) -> bool:
    """Whether either marker is there.  Processes ask at start and once per poll."""
    for key in (destroyed_key(root), deleting_key(root)):
        if await store.head(key) is not None:
            return True
    return False


async def require_not_destroyed(store: ObjectStore, root: str) -> None:
    """Return if the database may be used.

    Raises:
        InvalidDbState: it is marked.
    """
    if await is_destroyed(store, root):
        raise InvalidDbState(f"the database at {root or '/'} is destroyed")
