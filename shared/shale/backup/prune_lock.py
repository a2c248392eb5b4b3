"""The lock of a prune.

Each prune has a lock of its own, whose name contains an id.  No name is used twice, so a late delete of an earlier lock
cannot remove it.  A prune writes its lock and then lists all: of two that start at the same time, at least one sees the
other.

Earlier releases know only ``prune.lock``, which a prune writes, too.  A late delete can remove this one.
"""

from shale.backup import names
from shale.backup.document import seal
from shale.env import Env
from shale.errors import AlreadyExists, InvalidDbState, ShaleError
from shale.store.port import CREATE, LIST_PAGE, ObjectStore
from shale.types import Ulid


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
    body = seal({"started_ms": env.clock.now_ms()})
    own = names.lock_key(root, lock_id)
    await store.put(own, body, mode=CREATE)
    try:
        await _require_alone(store, root, own)
        await _create_earlier_lock(store, names.earlier_lock_key(root), body)
    except ShaleError:
        await store.delete(own)
        raise
    return lock_id


async def release_lock(store: ObjectStore, root: str, lock_id: Ulid) -> None:
    """Remove a lock.  Its own object is the last, so the other one is never there without it."""
    await store.delete(names.earlier_lock_key(root))
    await store.delete(names.lock_key(root, lock_id))


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


async def _create_earlier_lock(store: ObjectStore, key: str, body: bytes) -> None:
    try:
        await store.put(key, body, mode=CREATE)
    except AlreadyExists:
        raise _refusal(key) from None


def _refusal(key: str) -> InvalidDbState:
    return InvalidDbState(f"{key}: another prune runs; if it was killed, and only then, repeat this with break_lock")
