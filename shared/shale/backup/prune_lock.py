"""The lock of a prune.

Each prune has a lock of its own, whose name contains an id.  No name is used twice, so a late delete of an earlier lock
cannot remove it.  A prune writes its lock and then lists all: of two that start at the same time, at least one sees the
other.

Earlier releases know only ``prune.lock``, which a prune writes, too.  A late delete can remove this one.

Both objects hold the id.  A create whose answer was lost, and that is repeated, meets an object with this id; and a
prune that fails or is cancelled, and does not know which of them it has written, removes those with its id.
"""

from contextlib import suppress

import anyio

from shale.backup import names
from shale.backup.document import seal
from shale.env import Env
from shale.errors import AlreadyExists, InvalidDbState, ShaleError
from shale.store.port import CREATE, LIST_PAGE, ObjectStore
from shale.types import Ulid

_CANCELLED_S = 5.0
"""How long a caller that is cancelled waits until its lock is removed."""


async def find_lock(store: ObjectStore, root: str) -> str | None:
    """Return the key of a lock; ``None``: no prune runs."""
    for meta in await store.list(names.locks_prefix(root)):
        return meta.key
    earlier = names.earlier_lock_key(root)
    return None if await store.head(earlier) is None else earlier


async def acquire_lock(store: ObjectStore, root: str, env: Env) -> Ulid:
    """Write a lock; return its id.

    Raises:
        InvalidDbState: another prune runs, or was killed.  The lock is removed.
    """
    lock_id = env.ids.ulid()
    body = seal({"started_ms": env.clock.now_ms(), "id": str(lock_id)})
    own = names.lock_key(root, lock_id)
    try:
        await _create(store, own, body)
        await _require_alone(store, root, own)
        await _create(store, names.earlier_lock_key(root), body)
    except BaseException:
        with suppress(ShaleError):
            await release_lock(store, root, lock_id)
        raise
    return lock_id


async def release_lock(store: ObjectStore, root: str, lock_id: Ulid) -> None:
    """Remove a lock.  A caller that is cancelled waits for it, for at most ``_CANCELLED_S``."""
    try:
        await _remove(store, root, lock_id)
    except anyio.get_cancelled_exc_class():
        with suppress(ShaleError), anyio.move_on_after(_CANCELLED_S, shield=True):
            await _remove(store, root, lock_id)
        raise


async def break_locks(store: ObjectStore, root: str) -> None:
    """Remove the locks of all prunes."""
    await store.delete(names.earlier_lock_key(root))
    locks = [meta.key for meta in await store.list(names.locks_prefix(root))]
    for start in range(0, len(locks), LIST_PAGE):
        for error in (await store.delete_many(locks[start : start + LIST_PAGE])).values():
            raise error


async def _require_alone(store: ObjectStore, root: str, own: str) -> None:
    found = [meta.key for meta in await store.list(names.locks_prefix(root))]
    if own not in found:
        raise InvalidDbState(f"{own}: another prune has broken this lock")
    for key in found:
        if key != own:
            raise _refusal(key)


async def _create(store: ObjectStore, key: str, body: bytes) -> None:
    """Create an object of a lock, unless it is there from a create whose answer was lost.

    Raises:
        InvalidDbState: another prune has created it.
    """
    try:
        await store.put(key, body, mode=CREATE)
    except AlreadyExists:
        found = await store.get(key)
        if found is None or bytes(found.data) != body:
            raise _refusal(key) from None


async def _remove(store: ObjectStore, root: str, lock_id: Ulid) -> None:
    """Remove both objects, the earlier one only if it is of this lock.

    The own object is the last, so the other one is never there without it.
    """
    earlier = names.earlier_lock_key(root)
    found = await store.get(earlier)
    if found is not None and str(lock_id).encode() in bytes(found.data):
        await store.delete(earlier)
    await store.delete(names.lock_key(root, lock_id))


def _refusal(key: str) -> InvalidDbState:
    return InvalidDbState(f"{key}: another prune runs; if it was killed, and only then, repeat this with break_lock")
