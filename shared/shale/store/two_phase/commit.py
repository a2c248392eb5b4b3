"""Create, finish and delete one object of the two-phase mode (docs/reference/protocol.md 12.3, 12.5, 12.6).

The insert of the record is the commit point.  Everything after it may be done by any process, any number of times:
copies of one record have the same bytes.
"""

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

from shale.core.bytes_like import BytesLike
from shale.env import Env
from shale.errors import AlreadyExists, InvalidObjectState, NotFoundError, ShaleError
from shale.store.port import ObjectStore
from shale.store.transactional.port import CommitRecord, TransactionalStore
from shale.store.two_phase.names import parse_staged_key, slot_of, staged_key
from shale.store.wrapper import delete_each

Parts = Sequence[BytesLike]

_INLINE_BYTES_MAX = 256 << 10


class TwoPhaseCommits:
    """Commits and deletes objects of ``objects`` by records of ``records``."""

    def __init__(self, objects: ObjectStore, records: TransactionalStore, env: Env) -> None:
        self._objects = objects
        self._records = records
        self._env = env

    async def insert(self, key: str, parts: Parts, put_id: str, attributes: Mapping[str, str] | None) -> CommitRecord:
        """Stage the bytes and insert the record of ``key``; a repetition with the same put id continues.

        Raises:
            AlreadyExists: another put has committed the key, or its id may have been deleted.
            InvalidObjectState: a put has written the key, and the object is gone; no id after it can be used.
        """
        checksum = await self._checksum(parts)
        source = staged_key(key, put_id, checksum)
        record = CommitRecord(
            destination=key,
            source=source,
            put_id=put_id,
            checksum=checksum,
            size=sum(len(part) for part in parts),
            created_at_ms=self._env.clock.now_ms(),
        )
        await self._stage(record, parts, attributes)
        found = await self._records.insert(record, slot_of(key))
        if found is not None and found.put_id == put_id:
            return found
        if found is not None and not await self.help(found):
            await self._require_object(found)
        await self._objects.delete(source)
        raise AlreadyExists(f"{key} exists" if found is not None else f"{key} is at or below the low-water mark")

    async def write_destination(
        self, record: CommitRecord, parts: Parts | None = None, attributes: Mapping[str, str] | None = None
    ) -> bool:
        """Copy the staged object to its destination; return whether the record still waits to be set committed.

        Args:
            record: an uncommitted record.
            parts: the bytes, if the caller has them: it stages them again if the staged object is gone.

        Raises:
            InvalidObjectState: the staged object is gone, nothing else has the bytes.
        """
        try:
            await self._objects.copy(record.source, record.destination)
        except NotFoundError:
            if await self._has_destination(record):
                return True
            current = await self._records.get(record.destination)
            if current is None or current.is_committed or current.is_deleted or current.put_id != record.put_id:
                return False
            if parts is None:
                raise InvalidObjectState(
                    f"the record of put {record.put_id} is not committed, and the staged object is gone",
                    path=record.source,
                ) from None
            await self._stage(record, parts, attributes)
            await self._objects.copy(record.source, record.destination)
        return True

    async def finish(self, record: CommitRecord) -> None:
        """Set a record committed whose destination is written, then delete the staged object."""
        await self._records.set_committed(record)
        await self._objects.delete(record.source)

    async def help(self, record: CommitRecord) -> bool:
        """Finish the put of any process, and return whether there was something to do."""
        if record.is_deleted or record.is_committed:
            return False
        if await self.write_destination(record):
            await self.finish(record)
        return True

    async def delete(self, keys: Sequence[str]) -> dict[str, ShaleError]:
        """Delete objects that have records; return the errors by key.

        The order makes every interruption safe: a tombstone keeps others from finishing the put, and is removed last.
        """
        marks: dict[str, int] = {}
        for slot in filter(None, map(slot_of, keys)):
            marks[slot.namespace] = max(slot.id, marks.get(slot.namespace, 0))
        for namespace, mark in marks.items():
            await self._records.raise_low_water_mark(namespace, mark)
        await self._records.set_deleted(keys)
        return await self.delete_marked(keys)

    async def delete_marked(self, keys: Sequence[str]) -> dict[str, ShaleError]:
        """Delete objects, their staged objects, and their tombstones; return the errors by key."""
        errors = dict(await self._objects.delete_many(keys))
        staged = [key async for key in self._staged_of(keys)]
        for key, error in (await delete_each(self._objects.delete, staged)).items():
            name = parse_staged_key(key)
            assert name is not None, "listed as a staged object"
            errors.setdefault(name.destination, error)
        await self._records.remove_deleted([key for key in keys if key not in errors])
        return errors

    async def _staged_of(self, keys: Sequence[str]) -> AsyncIterator[str]:
        wanted = set(keys)
        by_directory: dict[str, list[str]] = {}
        for key in keys:
            by_directory.setdefault(f"{key.rpartition('/')[0]}/" if "/" in key else "", []).append(key)
        for directory, members in by_directory.items():
            last = f"{max(members)}/"  # "/" follows "." in order, so this is after all staged objects of the last key
            async for page in self._objects.list_pages(directory, after=min(members)):
                for meta in page:
                    if (name := parse_staged_key(meta.key)) is not None and name.destination in wanted:
                        yield meta.key
                if page[-1].key > last:
                    break

    async def _has_destination(self, record: CommitRecord) -> bool:
        found = await self._objects.get(record.destination)
        if found is None or len(found.data) != record.size:
            return False
        return await self._checksum([found.data]) == record.checksum

    async def _require_object(self, record: CommitRecord) -> None:
        """Check that the object of a committed record exists, or is deleted with its record.

        A bucket that was restored without its records has records of the future: the create would conflict for ever.
        """
        if record.is_deleted or await self._objects.head(record.destination) is not None:
            return
        current = await self._records.get(record.destination)
        if current is None or current.is_deleted or not current.is_committed:
            return
        raise InvalidObjectState(
            "the object is gone, and its commit record is there: if the store was restored from a backup, stop all "
            "processes and run 'shale cas migrate --to two-phase'",
            path=record.destination,
        )

    async def _checksum(self, parts: Parts) -> str:
        """Hash in a thread what would hold up the event loop."""
        if sum(map(len, parts)) <= _INLINE_BYTES_MAX:
            return _sha256(parts)
        return await self._env.cpu.run(partial(_sha256, parts))

    async def _stage(self, record: CommitRecord, parts: Parts, attributes: Mapping[str, str] | None) -> None:
        if not self._objects.supports_attributes:
            attributes = None
        await self._objects.put(record.source, parts, attributes=attributes)


def _sha256(parts: Parts) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
