"""What manifests of both versions have in common: checkpoints, external databases, the WAL frontier."""

from collections.abc import Sequence

from shale.format.flat_reader import FlatTable
from shale.format.flat_writer import FlatWriter
from shale.format.tables import CHECKPOINT, EXTERNAL_DB
from shale.types import (
    EMPTY_SEQUENCE_TRACKER,
    U64_MAX,
    Checkpoint,
    ExternalDb,
    KeyRange,
    ManifestId,
    Sst,
    SstView,
    Ulid,
    WalId,
)


def write_checkpoints(writer: FlatWriter, checkpoints: Sequence[Checkpoint]) -> int:
    """A vector of ``Checkpoint``; metadata is read by nobody and never written."""
    tables = []
    for checkpoint in checkpoints:
        id_ = writer.uuid(checkpoint.id)
        name = writer.string(checkpoint.name)
        values = (id_, checkpoint.manifest_id, checkpoint.expire_s, checkpoint.create_s, 0, 0, name)
        tables.append(writer.table(CHECKPOINT, values))
    return writer.references(tables)


def read_checkpoints(root: FlatTable, slot: int) -> tuple[Checkpoint, ...]:
    """The required vector of ``Checkpoint``."""
    return tuple(
        Checkpoint(
            id=table.required_uuid(0, "Checkpoint.id"),
            manifest_id=ManifestId(table.u64(1)),
            expire_s=table.u32(2),
            create_s=table.u32(3),
            name=table.string(6),
        )
        for table in root.required_tables(slot, "checkpoints")
    )


def write_external_dbs(writer: FlatWriter, external_dbs: Sequence[ExternalDb]) -> int:
    """A vector of ``ExternalDb``; absent when there are none."""
    if not external_dbs:
        return 0
    tables = []
    for external_db in external_dbs:
        path = writer.string(external_db.path)
        source = writer.uuid(external_db.source_checkpoint_id)
        final = writer.uuid(external_db.final_checkpoint_id)
        sst_ids = writer.ulids(external_db.sst_ids)
        tables.append(writer.table(EXTERNAL_DB, (path, source, final, sst_ids)))
    return writer.references(tables)


def read_external_dbs(root: FlatTable, slot: int) -> tuple[ExternalDb, ...]:
    """The optional vector of ``ExternalDb``."""
    return tuple(_read_external_db(table) for table in root.tables(slot) or ())


def _read_external_db(table: FlatTable) -> ExternalDb:
    path = table.string(0)
    sst_ids = table.ulids(3)
    if path is None or sst_ids is None:
        raise table.corrupt("an external database lacks its path or its list of SSTs")
    return ExternalDb(
        path=path,
        source_checkpoint_id=table.required_uuid(1, "ExternalDb.source_checkpoint_id"),
        final_checkpoint_id=table.uuid(2),
        sst_ids=sst_ids,
    )


def read_next_wal_sst_id(root: FlatTable, slot: int) -> WalId:
    """``wal_id_last_seen`` plus one."""
    last_seen = root.u64(slot)
    if last_seen == U64_MAX:
        raise root.corrupt("no WAL id is left")
    return WalId(last_seen + 1)


def read_tracker(root: FlatTable, slot: int) -> bytes:
    """The sequence tracker, still encoded.  Absent is fine; SlateDB aborts on an empty vector, so we refuse it."""
    tracker = root.blob(slot)
    if tracker == b"":
        raise root.corrupt("the sequence tracker has no bytes")
    return EMPTY_SEQUENCE_TRACKER if tracker is None else tracker


def view_of(table: FlatTable, id: Ulid, sst: Sst, visible_range: KeyRange | None) -> SstView:  # noqa: A002
    """A view, if it can show anything: SlateDB aborts when a visible range misses the whole SST."""
    view = SstView(id=id, sst=sst, visible_range=visible_range)
    if visible_range is not None and view.effective_range.is_empty:
        raise table.corrupt(f"view {id} shows no key of its SST")
    return view
