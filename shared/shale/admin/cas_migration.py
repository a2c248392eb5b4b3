"""Move a database between conditional writes of the store and the two-phase mode (docs/reference/protocol.md 12.8).

All processes of the database must be stopped.  Every step can be repeated, so an interrupted migration is run again.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import InvalidDbState, LatestRecordMissing
from shale.format.boundary import encode_boundary
from shale.format.manifest import decode_manifest, encode_manifest
from shale.format.names import (
    boundary_key,
    compactions_prefix,
    destroyed_key,
    manifest_key,
    manifest_prefix,
    parse_manifest_key,
    wal_prefix,
)
from shale.protocol.wal_completeness import is_wal_truncated, wal_truncated
from shale.protocol.wal_store import WalStore
from shale.store.port import CREATE, OVERWRITE, ObjectStore
from shale.store.transactional.port import CommitRecord, TransactionalStore
from shale.store.two_phase.names import parse_staged_key, slot_of
from shale.store.two_phase.recovery import TwoPhaseRecovery
from shale.store.two_phase.store import TwoPhaseStore
from shale.telemetry.metrics import Metrics
from shale.types import CasMode, ExclusiveModes, Manifest

_IMPORTED = "imported"
_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport:
    """What a migration did, or would do: commit records added or removed, marks by namespace, and the new version."""

    records: int
    marks: dict[str, int]
    manifest_id: int
    is_done_already: bool = False
    removed: int = 0
    """Records of files that are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CasMigration:
    """A database to migrate.

    Args:
        objects: its store, without the two-phase mode.
        wal_objects: the store of its WAL, if separate.
        records: the transactional store.
        root: the path of the database.
    """

    objects: ObjectStore
    records: TransactionalStore
    root: str
    env: Env
    wal_objects: ObjectStore | None = None

    async def to_two_phase(self, *, dry_run: bool) -> MigrationReport:
        """Make records of all numbered files, then a manifest that says so.

        A database that has the mode already gets the records that are missing: after its transactional store was lost
        or restored from a backup.  Records of files that are gone are removed: after the files were restored.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidDbState: the WAL is in a backend, or in a store of its own, which was not given.
        """
        manifest_id, manifest = await self._latest(self.objects)
        await self._require_wal(manifest)
        marks = await self._boundaries(manifest)
        existing = await self._existing()
        records = [record for record in existing if not _is_below(record, marks)]
        lost = await self._records_of_lost_files({record.destination for record in existing})
        report = MigrationReport(records=len(records), marks=marks, manifest_id=manifest_id + 1, removed=len(lost))
        is_done = _cas(manifest) is CasMode.TWO_PHASE
        if is_done:
            report = replace(report, manifest_id=manifest_id, is_done_already=True)
        if dry_run:
            return report
        if lost:
            await self.records.set_deleted(lost)
            await self.records.remove_deleted(lost)
        if await self._has_marks_of_lost_files(existing):
            await self._recover()
            await self.records.remove_all(*self._prefixes)
        for namespace, mark in marks.items():
            await self.records.raise_low_water_mark(namespace, mark)
        for start in range(0, len(records), _BATCH):
            await self.records.import_committed(records[start : start + _BATCH])
        if is_done:
            return report
        modes = manifest.exclusive if manifest.exclusive is not None else ExclusiveModes()
        new = replace(manifest, exclusive=replace(modes, cas=CasMode.TWO_PHASE))
        await self._write_two_phase(manifest_key(self.root, manifest_id + 1), encode_manifest(new))
        return report

    async def to_native(self, *, dry_run: bool) -> MigrationReport:
        """Finish all puts, write the boundaries, then a manifest without the mode, then remove the records.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidDbState: a put cannot be finished.
        """
        if not dry_run:
            await self._recover()
        manifest_id, manifest = await self._latest(self.objects)
        marks: dict[str, int] = {}
        count = 0
        for prefix in self._prefixes:
            marks |= await self.records.low_water_marks(prefix)
            count += len(await self.records.records(prefix))
        is_done = _cas(manifest) is CasMode.NATIVE
        report = MigrationReport(
            records=count, marks=marks, manifest_id=manifest_id if is_done else manifest_id + 1, is_done_already=is_done
        )
        if dry_run:
            return report
        if not is_done:
            await self._write_boundaries(marks)
            await self._write_native(manifest_id + 1, manifest)
        await self.records.remove_all(*self._prefixes)
        return report

    @property
    def _prefixes(self) -> tuple[str, ...]:
        """The keys of this database that have records; those of a database nested in it have other prefixes."""
        numbered = (manifest_prefix(self.root), compactions_prefix(self.root), wal_prefix(self.root))
        return (*numbered, destroyed_key(self.root))

    async def _recover(self) -> None:
        """Finish all puts.  A record that was left would be removed later, and with it the only name of the bytes."""
        for prefix in self._prefixes:
            two_phase = TwoPhaseStore(self._objects_of(prefix), self.records, self.env)
            result = await TwoPhaseRecovery(two_phase, self.env, Metrics(), prefix).recover(min_age_ms=None)
            for destination, error in result.errors.items():
                raise InvalidDbState(f"{destination}: the put cannot be finished: {error}") from error

    async def _records_of_lost_files(self, existing: Collection[str]) -> list[str]:
        """Return the destinations of records whose bytes are gone: the files are of an older time than the records."""
        found: list[str] = []
        for prefix in self._prefixes:
            objects = self._objects_of(prefix)
            records = await self.records.records(prefix)
            if records and prefix == wal_prefix(self.root) and not any(key.startswith(prefix) for key in existing):
                raise InvalidDbState(
                    f"{prefix} has records and no file: if the WAL is in another store, give wal_store"
                )
            for record in records:
                if record.is_deleted or record.destination in existing:
                    continue
                if await objects.head(record.destination) is not None:
                    continue
                if record.is_committed or await objects.head(record.source) is None:
                    found.append(record.destination)
        return found

    async def _has_marks_of_lost_files(self, existing: Sequence[CommitRecord]) -> bool:
        """Return whether a mark is at or above the newest file, so that no later one could be created."""
        newest = {slot.namespace: slot.id for record in existing if (slot := slot_of(record.destination)) is not None}
        for prefix in self._prefixes:
            for namespace, mark in (await self.records.low_water_marks(prefix)).items():
                if mark and mark >= newest.get(namespace, 0):
                    return True
        return False

    def _objects_of(self, prefix: str) -> ObjectStore:
        is_wal = prefix == wal_prefix(self.root)
        return self.wal_objects if is_wal and self.wal_objects is not None else self.objects

    async def _require_wal(self, manifest: Manifest) -> None:
        """Check that the WAL is not in a backend, or in a store that was not given: its files would get no records."""
        if manifest.wal_backend is not None:
            place = f"the database at {self.root or '/'}"
            raise InvalidDbState(f"{place} keeps its WAL in the backend {manifest.wal_backend!r}: it stays native")
        if self.wal_objects is not None or not is_wal_truncated(manifest, manifest.replay_after_wal_id):
            return
        wal = WalStore(self.objects, self.root)
        if not await wal.ids_after(manifest.replay_after_wal_id):
            raise wal_truncated(wal, manifest.replay_after_wal_id, manifest)

    async def _write_boundaries(self, marks: dict[str, int]) -> None:
        for resource in ("manifest", "compactions"):
            if mark := marks.get(_namespace(self.root, resource), 0):
                await self.objects.put(boundary_key(self.root, resource), encode_boundary(mark), mode=OVERWRITE)

    async def _write_two_phase(self, key: str, data: bytes) -> None:
        """Write the manifest that other processes refuse.

        Its record is committed before the object exists.  If it waited for a copy, native processes could go on after
        an interruption, and the copy would replace what they wrote.  A committed record without its object changes
        nothing for them, and is removed when the migration is run again.
        """
        record = _committed_record(key, len(data), self.env)
        await self.records.import_committed([record])
        await self.objects.put(key, data, mode=OVERWRITE)

    async def _write_native(self, manifest_id: int, manifest: Manifest) -> None:
        modes = manifest.exclusive
        assert modes is not None
        native = replace(modes, cas=CasMode.NATIVE)
        new = replace(manifest, exclusive=None if native == ExclusiveModes() else native)
        await self.objects.put(manifest_key(self.root, manifest_id), encode_manifest(new), mode=CREATE)

    async def _latest(self, store: ObjectStore) -> tuple[int, Manifest]:
        """Return the newest manifest and its id, whatever mode it has."""
        ids = [parse_manifest_key(self.root, meta.key) for meta in await store.list(manifest_prefix(self.root))]
        newest = max((id_ for id_ in ids if id_ is not None), default=None)
        found = None if newest is None else await store.get(manifest_key(self.root, newest))
        if newest is None or found is None:
            raise LatestRecordMissing(f"no manifest below {manifest_prefix(self.root)}")
        return newest, decode_manifest(found.data, path=manifest_key(self.root, newest))

    async def _boundaries(self, manifest: Manifest) -> dict[str, int]:
        marks = {_namespace(self.root, "wal"): max(0, manifest.replay_after_wal_id - 1)}
        for resource in ("manifest", "compactions"):
            found = await self.objects.get(boundary_key(self.root, resource))
            marks[_namespace(self.root, resource)] = 0 if found is None else int(bytes(found.data))
        return {namespace: mark for namespace, mark in marks.items() if mark}

    async def _existing(self) -> Sequence[CommitRecord]:
        """Return a record for each numbered file, fences included."""
        wal = self.wal_objects if self.wal_objects is not None else self.objects
        places = (
            (self.objects, manifest_prefix(self.root)),
            (self.objects, compactions_prefix(self.root)),
            (wal, wal_prefix(self.root)),
        )
        return [
            _committed_record(meta.key, meta.size, self.env)
            for store, prefix in places
            for meta in await store.list(prefix)
            if slot_of(meta.key) is not None and parse_staged_key(meta.key) is None
        ]


def _committed_record(key: str, size: int, env: Env) -> CommitRecord:
    return CommitRecord(
        destination=key,
        source="",
        put_id=_IMPORTED,
        checksum="",
        size=size,
        created_at_ms=env.clock.now_ms(),
        is_committed=True,
    )


def _is_below(record: CommitRecord, marks: dict[str, int]) -> bool:
    slot = slot_of(record.destination)
    return slot is not None and slot.id <= marks.get(slot.namespace, 0)


def _namespace(root: str, resource: str) -> str:
    return f"{root}/{resource}" if root else resource


def _cas(manifest: Manifest) -> CasMode:
    return CasMode.NATIVE if manifest.exclusive is None else manifest.exclusive.cas
