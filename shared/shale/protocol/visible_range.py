"""The keys that a projected clone shows, in an object beside its manifest: ``gc/visible_range``.

A manifest limits single SSTs, and SSTs that the clone makes itself have no limit, so the range of a clone cannot be
told from its manifest once everything is compacted.  SlateDB ignores the object, and Shale opens a database of another
process with it: writes outside of the range and reads wholly outside of it are refused.

Source: docs/reference/protocol.md 11.
"""

from functools import partial

from shale.concurrency.gather import gather
from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError
from shale.format.names import visible_range_key
from shale.protocol.markers import require_not_destroyed
from shale.store.port import ObjectStore
from shale.types import EVERYTHING, UNBOUNDED, Bound, KeyRange, excluded, included

_FORMAT = 1


async def require_usable(store: ObjectStore, root: str, given: KeyRange | None) -> KeyRange | None:
    """Check that a database may be opened; return the keys that a handle keeps to, ``None`` for all.

    Args:
        given: the range that the caller of the open gave, instead of the stored one.

    Raises:
        InvalidDbState: the database is destroyed.
        CorruptionError: the stored range cannot be decoded.
    """
    found: list[KeyRange] = []

    async def read() -> None:
        stored = await read_visible_range(store, root)
        if stored is not None:
            found.append(stored)

    checks = [partial(require_not_destroyed, store, root)]
    # The request takes no time of its own: the markers take two, one after the other.
    await gather([*checks, read] if given is None else checks)
    kept = found[0] if found else given
    return None if kept == EVERYTHING else kept


async def read_visible_range(store: ObjectStore, root: str) -> KeyRange | None:
    """Read the range; ``None`` if the database is no projected clone.

    Raises:
        CorruptionError: it cannot be decoded.
    """
    key = visible_range_key(root)
    result = await store.get(key)
    return None if result is None else decode_visible_range(result.data, path=key)


async def write_visible_range(store: ObjectStore, root: str, keys: KeyRange | None) -> None:
    """Store the range of a clone that has no manifest yet; ``None`` removes that of an earlier attempt."""
    key = visible_range_key(root)
    if keys is None:
        if await store.head(key) is not None:
            await store.delete(key)
    else:
        await store.put(key, encode_visible_range(keys))


def encode_visible_range(keys: KeyRange) -> bytes:
    """Return the stored form of a range: one JSON object, keys in hex."""
    import json

    return json.dumps({"format": _FORMAT, "start": _fields(keys.start), "end": _fields(keys.end)}).encode()


def _fields(bound: Bound) -> dict[str, object] | None:
    return None if bound.key is None else {"key": bound.key.hex(), "included": bound == included(bound.key)}


def decode_visible_range(data: BytesLike, *, path: str) -> KeyRange:
    """Read what ``encode_visible_range`` writes; fields that a later release adds are ignored.

    Raises:
        CorruptionError: not this JSON, or a format that this release does not know.
    """
    import json

    try:
        fields = json.loads(bytes(data))
        if fields["format"] != _FORMAT:
            raise CorruptionError(f"format {fields['format']!r} of the visible range is not known", path=path)
        return KeyRange(_bound(fields["start"]), _bound(fields["end"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptionError(f"the visible range is {bytes(data[:64])!r}", path=path) from error


def _bound(fields: dict[str, str] | None) -> Bound:
    if fields is None:
        return UNBOUNDED
    return (included if fields["included"] else excluded)(bytes.fromhex(fields["key"]))
