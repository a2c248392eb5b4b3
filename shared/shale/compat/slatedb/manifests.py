"""Conversion of manifests and compactions to the records of the binding."""

from collections.abc import Iterable

from shale import types
from shale.compat.slatedb.errors import invalid
from shale.compat.slatedb.types.enums import (
    CompactionSpec,
    CompactionStatus,
    CompressionCodec,
    FilterFormat,
    SourceId,
    SstType,
)
from shale.compat.slatedb.types.records import KeyRange
from shale.compat.slatedb.types.states import (
    Checkpoint,
    Compaction,
    ExternalDb,
    Segment,
    SortedRun,
    SsTableHandle,
    SsTableId,
    SsTableInfo,
    SsTableView,
    VersionedCompactions,
    VersionedManifest,
)
from shale.types import BoundKind


def manifest_of(file_id: int, manifest: types.Manifest) -> VersionedManifest:
    """Convert a version of the manifest."""
    tree = manifest.tree
    return VersionedManifest(
        id=file_id,
        writer_epoch=manifest.writer_epoch,
        compactor_epoch=manifest.compactor_epoch,
        external_dbs=[_external(db) for db in manifest.external_dbs],
        initialized=manifest.initialized,
        last_compacted_l0_sst_view_id=_ulid(tree.last_compacted_l0_sst_view_id),
        last_compacted_l0_sst_id=_ulid(tree.last_compacted_l0_sst_id),
        l0=_views(tree.l0),
        compacted=_runs(tree.compacted),
        segments=[_segment(segment) for segment in manifest.segments],
        next_wal_sst_id=manifest.next_wal_sst_id,
        replay_after_wal_id=manifest.replay_after_wal_id,
        last_l0_clock_tick=manifest.last_l0_clock_tick,
        last_l0_seq=manifest.last_l0_seq,
        recent_snapshot_min_seq=manifest.recent_snapshot_min_seq,
        checkpoints=[checkpoint_of(checkpoint) for checkpoint in manifest.checkpoints],
        wal_object_store_uri=manifest.wal_object_store_uri,
    )


def compactions_of(file_id: int, compactions: types.Compactions) -> VersionedCompactions:
    """Convert a version of the compactions file."""
    return VersionedCompactions(
        id=file_id,
        compactor_epoch=compactions.compactor_epoch,
        recent_compactions=[compaction_of(entry) for entry in compactions.entries],
    )


def compaction_of(entry: types.Compaction) -> Compaction:
    """Convert an entry of the compactions file; a worker's read bytes are not stored, so they are 0."""
    return Compaction(
        id=str(entry.id),
        spec=_spec(entry.spec),
        bytes_processed=0,
        status=CompactionStatus[entry.status.name],
        output_ssts=[_handle(sst) for sst in entry.output_ssts],
        active=entry.is_active,
    )


def checkpoint_of(checkpoint: types.Checkpoint) -> Checkpoint:
    """Convert a checkpoint of the manifest."""
    return Checkpoint(
        id=str(checkpoint.id),
        manifest_id=checkpoint.manifest_id,
        expire_time_secs=checkpoint.expire_s or None,
        create_time_secs=checkpoint.create_s,
        name=checkpoint.name,
    )


def engine_spec(spec: CompactionSpec) -> types.CompactionSpec:
    """Convert the specification of a compaction.

    Raises:
        Error: an id of a view is no ULID.
    """
    match spec:
        case CompactionSpec.TIERED() | CompactionSpec.DRAIN_SEGMENT():
            segment, sources, *destination = spec._values
        case _:
            raise TypeError(f"Expected CompactionSpec instance, {type(spec).__name__} found")
    views = tuple(_view_id(source[0]) for source in sources if source.is_SST_VIEW())
    runs = tuple(types.RunId(source[0]) for source in sources if source.is_SORTED_RUN())
    if not destination:
        return types.DrainSpec(segment=segment, l0_view_ids=views, sorted_runs=runs)
    run = types.RunId(destination[0])
    return types.TieredSpec(segment=segment, l0_view_ids=views, sorted_runs=runs, destination=run)


def _view_id(text: str) -> types.Ulid:
    id_ = types.Ulid.parse(text.upper())
    if id_ is None:
        raise invalid(f"invalid SST ULID: {text!r}")
    return id_


def _spec(spec: types.CompactionSpec) -> CompactionSpec:
    sources = [SourceId.SST_VIEW(str(view_id)) for view_id in spec.l0_view_ids]
    sources += [SourceId.SORTED_RUN(int(run_id)) for run_id in spec.sorted_runs]
    made: CompactionSpec
    if isinstance(spec, types.DrainSpec):
        made = CompactionSpec.DRAIN_SEGMENT(segment=spec.segment, sources=sources)
    else:
        made = CompactionSpec.TIERED(segment=spec.segment, sources=sources, destination=int(spec.destination))
    return made


def _external(db: types.ExternalDb) -> ExternalDb:
    return ExternalDb(
        path=db.path,
        source_checkpoint_id=str(db.source_checkpoint_id),
        final_checkpoint_id=None if db.final_checkpoint_id is None else str(db.final_checkpoint_id),
        sst_ids=[SsTableId(value=str(sst_id)) for sst_id in db.sst_ids],
    )


def _segment(segment: types.Segment) -> Segment:
    return Segment(
        prefix=segment.prefix,
        last_compacted_l0_sst_view_id=_ulid(segment.tree.last_compacted_l0_sst_view_id),
        l0=_views(segment.tree.l0),
        compacted=_runs(segment.tree.compacted),
    )


def _runs(runs: Iterable[types.SortedRun]) -> list[SortedRun]:
    return [
        SortedRun(id=run.id, sst_views=_views(run.ssts), estimated_size_bytes=run.estimated_size_bytes) for run in runs
    ]


def _views(views: Iterable[types.SstView]) -> list[SsTableView]:
    return [
        SsTableView(
            id=str(view.id),
            sst=_handle(view.sst),
            visible_range=None if view.visible_range is None else _range(view.visible_range),
            estimated_size_bytes=view.sst.estimated_size_bytes,
        )
        for view in views
    ]


def _handle(sst: types.Sst) -> SsTableHandle:
    info = sst.info
    codec = None if info.compression is types.Compression.NONE else CompressionCodec[info.compression.name]
    return SsTableHandle(
        id=SsTableId(value=str(sst.id)),
        info=SsTableInfo(
            first_entry=info.first_entry,
            last_entry=info.last_entry,
            index_offset=info.index_offset,
            index_len=info.index_len,
            filter_offset=info.filter_offset,
            filter_len=info.filter_len,
            compression_codec=codec,
            sst_type=SstType[info.sst_type.name],
            stats_offset=info.stats_offset,
            stats_len=info.stats_len,
            filter_format=FilterFormat[info.filter_format.name],
        ),
        estimated_size_bytes=sst.estimated_size_bytes,
    )


def _range(key_range: types.KeyRange) -> KeyRange:
    return KeyRange(
        start=key_range.start.key,
        start_inclusive=key_range.start.kind is BoundKind.INCLUDED,
        end=key_range.end.key,
        end_inclusive=key_range.end.kind is BoundKind.INCLUDED,
    )


def _ulid(id_: types.Ulid | None) -> str | None:
    return None if id_ is None else str(id_)
