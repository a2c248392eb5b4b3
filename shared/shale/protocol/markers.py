"""Markers of databases that are being, or are going to be, destroyed (docs/protocol.md 8.8).

``.deleting`` is SlateDB's too: its objects are being deleted, and whoever finds it may finish that.  ``.destroyed`` is
ours: nobody shall use the database any more, and a collector deletes it when the grace is over.
"""

import json
from dataclasses import dataclass
from uuid import UUID

from shale.errors import AlreadyExists, CorruptionError, InvalidDbState
from shale.format.names import deleting_key, destroyed_key
from shale.store.port import CREATE, Buffer, ObjectStore

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class DestroyedMark:
    """What ``.destroyed`` says: since when, in whole seconds since 1970, and which run of a command wrote it."""

    destroyed_at_s: int
    by: UUID


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


async def is_being_deleted(store: ObjectStore, root: str) -> bool:
    """Whether somebody has begun to delete its objects."""
    return await store.head(deleting_key(root)) is not None


async def read_destroyed_mark(store: ObjectStore, root: str) -> DestroyedMark | None:
    """What the marker says; ``None`` if there is none.

    Raises:
        CorruptionError: it cannot be understood, so nobody knows when the grace is over.
    """
    key = destroyed_key(root)
    got = await store.get(key)
    return None if got is None else decode_destroyed_mark(got.data, path=key)


async def put_destroyed_mark(store: ObjectStore, root: str, mark: DestroyedMark) -> DestroyedMark:
    """Put the marker down unless there is one, and return the one that holds: the first keeps its time."""
    key = destroyed_key(root)
    try:
        await store.put(key, encode_destroyed_mark(mark), mode=CREATE)
    except AlreadyExists:
        found = await read_destroyed_mark(store, root)
        if found is None:
            raise InvalidDbState(f"{key} was there and is gone: somebody deletes the database") from None
        return found
    return mark


def encode_destroyed_mark(mark: DestroyedMark) -> bytes:
    """The marker's bytes: one JSON object."""
    return json.dumps({"destroyed_at_s": mark.destroyed_at_s, "by": str(mark.by), "format": _FORMAT}).encode()


def decode_destroyed_mark(data: Buffer, *, path: str) -> DestroyedMark:
    """Read what ``encode_destroyed_mark`` writes; fields that a later release adds are ignored.

    Raises:
        CorruptionError: no such JSON, or of a format that this release does not know.
    """
    try:
        found = json.loads(bytes(data))
        if found["format"] != _FORMAT:
            raise CorruptionError(f"format {found['format']!r} of the marker is not known", path=path)
        at_s, by = found["destroyed_at_s"], UUID(found["by"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(f"the marker holds {bytes(data[:64])!r}", path=path) from error
    if not isinstance(at_s, int) or isinstance(at_s, bool) or at_s < 0:
        raise CorruptionError(f"destroyed_at_s is {at_s!r}", path=path)
    return DestroyedMark(at_s, by)
