"""Markers of databases that are being destroyed, or will be (docs/reference/protocol.md 8.8).

``.deleting`` is SlateDB's: the objects of the database are being deleted, and any process that finds the marker may
complete that.  ``.destroyed`` is Shale's: no process may use the database, and a collector deletes it after the grace
period.
"""

from uuid import UUID

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.errors import AlreadyExists, CorruptionError, InvalidDbState
from shale.format.names import deleting_key, destroyed_key
from shale.store.port import CREATE, ObjectStore

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class DestroyedMark:
    """The content of ``.destroyed``: its time in whole seconds since 1970, and the run of the command that wrote it."""

    destroyed_at_s: int
    by: UUID


async def is_destroyed(store: ObjectStore, root: str) -> bool:
    """Return whether either marker exists.  Processes check at start and once per poll."""
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
    """Return whether a process has begun to delete the objects of the database."""
    return await store.head(deleting_key(root)) is not None


async def read_destroyed_mark(store: ObjectStore, root: str) -> DestroyedMark | None:
    """Read the marker; ``None`` if there is none.

    Raises:
        CorruptionError: it cannot be decoded, so the end of the grace period is unknown.
    """
    key = destroyed_key(root)
    result = await store.get(key)
    return None if result is None else decode_destroyed_mark(result.data, path=key)


async def put_destroyed_mark(store: ObjectStore, root: str, mark: DestroyedMark) -> DestroyedMark:
    """Write the marker unless there is one, and return the one that is stored: the first keeps its time."""
    key = destroyed_key(root)
    try:
        await store.put(key, encode_destroyed_mark(mark), mode=CREATE)
    except AlreadyExists:
        earlier = await read_destroyed_mark(store, root)
        if earlier is None:
            raise InvalidDbState(f"{key} existed and is missing now: another process deletes the database") from None
        return earlier
    return mark


def encode_destroyed_mark(mark: DestroyedMark) -> bytes:
    """Return the stored form of the marker: one JSON object."""
    import json

    return json.dumps({"destroyed_at_s": mark.destroyed_at_s, "by": str(mark.by), "format": _FORMAT}).encode()


def decode_destroyed_mark(data: BytesLike, *, path: str) -> DestroyedMark:
    """Read what ``encode_destroyed_mark`` writes; fields that a later release adds are ignored.

    Raises:
        CorruptionError: not this JSON, or a format that this release does not know.
    """
    import json

    try:
        fields = json.loads(bytes(data))
        if fields["format"] != _FORMAT:
            raise CorruptionError(f"format {fields['format']!r} of the marker is not known", path=path)
        at_s, by = fields["destroyed_at_s"], UUID(fields["by"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptionError(f"the marker holds {bytes(data[:64])!r}", path=path) from error
    if not isinstance(at_s, int) or isinstance(at_s, bool) or at_s < 0:
        raise CorruptionError(f"destroyed_at_s is {at_s!r}", path=path)
    return DestroyedMark(at_s, by)
