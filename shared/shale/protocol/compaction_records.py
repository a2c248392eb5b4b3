"""The records of compactions, one small object each (docs/reference/protocol.md 6.16).

They inform, and bound the attempts at a job; no row depends on them.  So a writer of them never fails for one: a
record that cannot be written is logged and left out.
"""

from collections.abc import AsyncIterator, Sequence

from shale.compaction.records import CompactionRecord, RecordChange, decode_record, encode_record
from shale.errors import AlreadyExists, CorruptionError, Precondition, ShaleError
from shale.format.names import compaction_record_key, compaction_records_prefix, parse_compaction_record_key
from shale.store.port import CREATE, OVERWRITE, ObjectMeta, ObjectStore, PutMode, Update
from shale.store.wrapper import cas_of
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import CasMode, Ulid

_TRIES_MAX = 8
log = get_logger("compaction")


class CompactionRecords:
    """The records of the database at ``root``."""

    def __init__(self, store: ObjectStore, root: str) -> None:
        self._store = store
        self._root = root

    def key(self, compaction_id: Ulid) -> str:
        """Return the key of the record of one compaction."""
        return compaction_record_key(self._root, compaction_id)

    async def read(self, compaction_id: Ulid) -> CompactionRecord | None:
        """Return the record of a compaction; ``None`` if there is none, or if it is corrupt."""
        return (await self._read(compaction_id))[0]

    async def change(self, compaction_id: Ulid, change: RecordChange) -> CompactionRecord | None:
        """Change a record, or a new one; ``change`` may be called again on a newer one.

        Returns:
            The stored record; ``None`` if it could not be stored, which is logged.
        """
        try:
            return await self._change(compaction_id, change)
        except ShaleError as error:
            log.warning(Event.COMPACTION_RECORD_FAILED, compaction_id=str(compaction_id), error=error)
            return None

    async def _change(self, compaction_id: Ulid, change: RecordChange) -> CompactionRecord:
        tries = 0
        while True:
            tries += 1
            stored, mode = await self._read(compaction_id)
            changed = change(stored if stored is not None else CompactionRecord(id=compaction_id))
            if changed == stored:
                return changed
            key, data = self.key(compaction_id), encode_record(changed)
            try:
                await self._store.put(key, data, mode=OVERWRITE if tries == _TRIES_MAX else mode)
            except (AlreadyExists, Precondition):
                continue
            return changed

    async def pages(self) -> AsyncIterator[Sequence[tuple[Ulid, ObjectMeta]]]:
        """Yield pages of all records; objects with other names are skipped."""
        async for page in self._store.list_pages(compaction_records_prefix(self._root)):
            named = ((parse_compaction_record_key(self._root, meta.key), meta) for meta in page)
            yield [(id_, meta) for id_, meta in named if id_ is not None]

    async def _read(self, compaction_id: Ulid) -> tuple[CompactionRecord | None, PutMode]:
        """Return a record, and how to replace it.

        On a store without native conditional writes each of them costs a transaction.  There a record is overwritten:
        what another process wrote in the same moment is lost.
        """
        key = self.key(compaction_id)
        got = await self._store.get(key)
        is_native = cas_of(self._store) is CasMode.NATIVE
        if got is None:
            return None, CREATE if is_native else OVERWRITE
        mode: PutMode = Update(got.meta.etag) if is_native and got.meta.etag is not None else OVERWRITE
        try:
            return decode_record(got.data, path=key), mode
        except CorruptionError as error:
            log.warning(Event.COMPACTION_RECORD_FAILED, compaction_id=str(compaction_id), error=error)
            return None, mode
