"""Valid documents of each kind: the small objects of a database that hold JSON."""

from uuid import UUID

from shale.backup.document import Backup, BackupObject, ObjectKind, encode_backup, object_fields, seal
from shale.compaction.records import Attempt, AttemptResult, CompactionKind, CompactionRecord, encode_record
from shale.protocol.markers import DestroyedMark, encode_destroyed_mark
from shale.protocol.visible_range import encode_visible_range
from shale.sst.disk_part import encode_head
from shale.types import EVERYTHING, CompactionStatus, DrainSpec, KeyRange, RunId, TieredSpec, Ulid

_ID = Ulid(1 << 80 | 7)


def visible_ranges() -> list[bytes]:
    """Return stored ranges of projected clones."""
    return [encode_visible_range(each) for each in (EVERYTHING, KeyRange.half_open(b"a", b"\xff\0"))]


def markers() -> list[bytes]:
    """Return the marker of a destroyed database."""
    return [encode_destroyed_mark(DestroyedMark(1_700_000_000, UUID(int=9)))]


def compaction_records() -> list[bytes]:
    """Return the records of a compaction that failed, and of one that begins."""
    tiered = TieredSpec(l0_view_ids=(_ID,), sorted_runs=(RunId(3),), destination=RunId(3))
    record = CompactionRecord(id=_ID, spec=tiered, kind=CompactionKind.INTERNAL, started_ms=5)
    attempt = Attempt(worker_id="w", ended_ms=9, result=AttemptResult.FAILED, outputs=1, error="it broke")
    drain = DrainSpec(segment=b"s", l0_view_ids=(_ID,), sorted_runs=(RunId(1),))
    return [
        encode_record(CompactionRecord(id=_ID)),
        encode_record(record.with_attempt(attempt).ended(CompactionStatus.FAILED, 10, "no")),
        encode_record(CompactionRecord(id=_ID, spec=drain, retry_of=_ID, kind=CompactionKind.EXTERNAL)),
    ]


def backup_plans() -> list[bytes]:
    """Return the plan of a backup in progress, and the objects that it has copied."""
    plain = {"started_ms": 5, "source": "s3://bucket/db", "path": "db", "owns_checkpoint": True, "manifest_id": 12}
    copied = [object_fields(each) for each in _objects()]
    return [seal({**plain, "checkpoint_id": str(UUID(int=3)), "ssts": [str(_ID)], "objects": copied})]


def _objects() -> tuple[BackupObject, ...]:
    return tuple(
        BackupObject(kind=kind, name=name, key=f"objects/{kind}", size=10, sha256="ab" * 32, encryption_key=key)
        for kind, name, key in zip(ObjectKind, (str(_ID), "4", "12", "gc"), ("k1", None, None, None), strict=True)
    )


def backups() -> list[bytes]:
    """Return the document of a backup with an object of each kind."""
    backup = Backup(
        id=_ID,
        started_ms=1,
        completed_ms=2,
        source="s3://bucket/db",
        path="db",
        manifest_id=12,
        checkpoint_id=UUID(int=3),
        last_l0_seq=99,
        replay_after_wal_id=3,
        objects=_objects(),
        copied_objects=4,
        copied_bytes=40,
    )
    return [encode_backup(backup)]


def cached_parts() -> list[bytes]:
    """Return files of the disk cache: parts of one chunk, and of several."""
    return [encode_head(bytes(range(16)), 2, data) + data for data in (b"part", bytes(40_000))]
