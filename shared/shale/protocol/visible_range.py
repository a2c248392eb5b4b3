"""The keys that a clone shows, in an object beside its manifest: ``gc/visible_range``.

A manifest limits single SSTs, and SSTs that the clone makes itself have no limit, so the range of a clone cannot be
told from its manifest once everything is compacted.  SlateDB ignores the object, and Shale opens a database of another
process with it: writes outside of the range and reads wholly outside of it are refused.

A clone that shows all keys has the object, too.  It is created or replaced on a condition and never removed, and each
attempt writes its own id, so that equal ranges have different etags.  Thus a late duplicate of the put of an earlier
attempt at the same path changes nothing.  Which of several attempts writes it: ``shale.clones.attempt_range``.

Source: docs/reference/protocol.md 11.
"""

from functools import partial
from uuid import UUID

from shale.concurrency.gather import gather
from shale.core.bytes_like import BytesLike
from shale.errors import AlreadyExists, CorruptionError, Precondition, UnavailableError
from shale.format.names import visible_range_key
from shale.protocol.markers import require_not_destroyed
from shale.store.port import CREATE, OVERWRITE, GetResult, ObjectStore, PutMode, Update
from shale.store.wrapper import cas_of
from shale.types import EVERYTHING, UNBOUNDED, Bound, CasMode, KeyRange, excluded, included

_FORMAT = 1
_TRIES_MAX = 5


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
    """Read the range; ``None`` if the database shows all keys.

    Raises:
        CorruptionError: it cannot be decoded.
    """
    key = visible_range_key(root)
    result = await store.get(key)
    stored = EVERYTHING if result is None else decode_visible_range(result.data, path=key)
    return None if stored == EVERYTHING else stored


async def write_visible_range(store: ObjectStore, root: str, keys: KeyRange | None, attempt: UUID) -> None:
    """Store the range of a database that is restored, instead of that of an earlier attempt.

    Args:
        store: where the database is.
        root: the path of the database.
        keys: the range; ``None``: all keys.
        attempt: a new id.

    Raises:
        UnavailableError: other processes store other ranges at the same time.
    """
    await store_visible_range(store, root, encode_visible_range(EVERYTHING if keys is None else keys, attempt))


async def store_visible_range(store: ObjectStore, root: str, data: bytes) -> None:
    """Store an encoded range, instead of that of another attempt.

    Raises:
        UnavailableError: other processes store other ranges at the same time.
    """
    key = visible_range_key(root)
    for _ in range(_TRIES_MAX):
        found = await store.get(key)
        # An equal range of another attempt is replaced, too: a put that waits for its etag could still come.
        if found is not None and bytes(found.data) == data:
            return
        try:
            await store.put(key, data, mode=_put_mode(store, found))
        except (AlreadyExists, Precondition):
            continue
        return
    raise UnavailableError(f"{key} is changed by other processes: make one database at a time at {root or '/'}")


def _put_mode(store: ObjectStore, found: GetResult | None) -> PutMode:
    """Return how to replace what was found: on a condition where the store has conditions of its own."""
    if cas_of(store) is not CasMode.NATIVE:
        return OVERWRITE
    if found is None:
        return CREATE
    return OVERWRITE if found.meta.etag is None else Update(found.meta.etag)


def encode_visible_range(keys: KeyRange, attempt: UUID | None = None) -> bytes:
    """Return the stored form of a range: one JSON object, keys in hex; earlier releases wrote no ``attempt``."""
    import json

    fields = {"format": _FORMAT, "start": _fields(keys.start), "end": _fields(keys.end)}
    return json.dumps(fields if attempt is None else {**fields, "attempt": str(attempt)}).encode()


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
