"""Opening a versioned store that another process may be creating at the same time."""

from typing import TypeVar

from shale.errors import ObjectVersionExists
from shale.protocol.transactional import Stored
from shale.protocol.versioned_store import VersionedStore

T = TypeVar("T")


async def load_or_create(store: VersionedStore[T], first: T) -> Stored[T]:
    """Return the newest version; if there is none, create the first one."""
    if await store.try_read_latest() is None:
        try:
            return await store.create_new(first)
        except ObjectVersionExists:
            pass
    return await store.load()
