"""Keeps one transactional store with one object store: both hold the same id, made by ``shale cas init``.

Keys of records have no bucket in them, so records of two buckets with the same paths would mix: a create in one would
conflict with a file of the other, and a deletion would remove the other's record.

The id is the object ``.shale-cas`` in the object store, and the put id of the record of that name.  Without an id on
either side nothing is checked: records in memory, for example, belong to their process.
"""

from shale.env import Env
from shale.errors import StoreUnsafe
from shale.store.port import ObjectStore
from shale.store.transactional.port import CommitRecord, TransactionalStore

ID_KEY = ".shale-cas"


async def require_same_id(objects: ObjectStore, records: TransactionalStore) -> None:
    """Check that the records belong to the objects.

    Raises:
        StoreUnsafe: one of them has no id, or another one.
    """
    of_objects, of_records = await _id_of_objects(objects), await _id_of_records(records)
    if of_objects == of_records:
        return
    if of_records is None:
        raise StoreUnsafe(
            f"{records.url} is new: run 'shale cas init'; or it has lost the records of {objects.url}: restore them, "
            "or run 'shale cas migrate --to two-phase' afterwards for each database, before any other process"
        )
    if of_objects is None:
        raise StoreUnsafe(
            f"{records.url} has the records of another store than {objects.url}, which has no id: give a bucket its "
            "own transactional store, or, if it is the WAL store of a database, run 'shale cas init' with --wal-store"
        )
    raise StoreUnsafe(
        f"{records.url} has the records of another store than {objects.url}: each bucket or directory needs its own"
    )


async def share_id(objects: ObjectStore, records: TransactionalStore, env: Env) -> None:
    """Give both the same id if the transactional store has none; an interrupted call is repeated.

    The object is first: a record without an object would look like that of another bucket.

    Raises:
        StoreUnsafe: the transactional store belongs to other objects.
    """
    if await _id_of_records(records) is None:
        id_ = await _id_of_objects(objects)
        if id_ is None:
            id_ = str(env.ids.uuid())
            await objects.put(ID_KEY, id_.encode())
        await records.insert(_record_of(id_, env), None)
    await require_same_id(objects, records)


async def copy_id(objects: ObjectStore, wal_objects: ObjectStore) -> None:
    """Give the store of a WAL the id of the store of its database, unless it has one."""
    id_ = await _id_of_objects(objects)
    if id_ is not None and await _id_of_objects(wal_objects) is None:
        await wal_objects.put(ID_KEY, id_.encode())


async def _id_of_objects(objects: ObjectStore) -> str | None:
    found = await objects.get(ID_KEY)
    return None if found is None else bytes(found.data).decode(errors="replace").strip()


async def _id_of_records(records: TransactionalStore) -> str | None:
    found = await records.get(ID_KEY)
    return None if found is None else found.put_id


def _record_of(id_: str, env: Env) -> CommitRecord:
    return CommitRecord(
        destination=ID_KEY,
        source="",
        put_id=id_,
        checksum="",
        size=len(id_),
        created_at_ms=env.clock.now_ms(),
        is_committed=True,
    )
