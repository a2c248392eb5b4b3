"""Manifests of version 1, for databases that processes before SlateDB 0.12 still read (docs/reference/format.md 4.4).

In version 1 an SST and its view are one table: it has no ids of views and no segments.  Its watermark is the id of an
SST, which is also the id of the view, so that the watermark stays when the last L0 is compacted.
"""

from collections.abc import Callable, Iterator, Sequence

from flatbuffers import Builder

from shale._generated import schema
from shale.errors import ManifestNeedsVersion2
from shale.format.flat.builder import write_bytes, write_offsets, write_string, write_ulid
from shale.format.manifest_writer import write_checkpoints, write_external_dbs
from shale.format.sst_references import write_sst_v1
from shale.types import Manifest, SortedRun, SstView, Ulid


def require_version_1(manifest: Manifest) -> None:
    """Return if version 1 can hold a manifest.

    Raises:
        ManifestNeedsVersion2: it cannot; the message names the first obstacle.
    """
    for obstacle in _obstacles(manifest):
        message = f"a manifest of version 1 cannot hold {obstacle}: set manifest.write_version=2"
        raise ManifestNeedsVersion2(message)


def _obstacles(manifest: Manifest) -> Iterator[str]:
    """Yield what version 1 has no place for."""
    modes = manifest.exclusive
    if modes is not None:
        yield f"a mode of the database (max_parallel_writes={modes.max_parallel_writes}, cas={modes.cas.value})"
    if manifest.segment_extractor_name is not None:
        yield f"the segment extractor {manifest.segment_extractor_name!r}"
    for segment in manifest.segments:
        yield f"the segment {segment.prefix.hex()}"
    known: set[Ulid] = set()
    for view in manifest.tree.views():
        if view.id != view.sst.id:
            yield f"the view {view.id} of the SST {view.sst.id}, which has another id"
        if view.sst.id in known:
            yield f"two views of the SST {view.sst.id}"
        known.add(view.sst.id)


def is_lossless_v1(manifest: Manifest) -> bool:
    """Return whether decoding gives the same value: the watermark is then known by both of its ids."""
    tree = manifest.tree
    return tree.last_compacted_l0_sst_view_id == tree.last_compacted_l0_sst_id


def write_manifest_v1(builder: Builder, manifest: Manifest) -> int:
    """Write a whole manifest and return the offset of its root table.

    Raises:
        ManifestNeedsVersion2: version 1 cannot hold it.
    """
    require_version_1(manifest)
    l0 = _write_views(builder, manifest.tree.l0)
    watermark = write_ulid(builder, _watermark(manifest))
    compacted = write_offsets(builder, [_write_run(builder, run) for run in manifest.tree.compacted])
    checkpoints = write_checkpoints(builder, manifest.checkpoints)
    external_dbs = write_external_dbs(builder, manifest.external_dbs)
    uri = write_string(builder, manifest.wal_object_store_uri)
    tracker = write_bytes(builder, manifest.sequence_tracker)
    fields: tuple[tuple[Callable[[Builder, int], None], int], ...] = (
        (schema.ManifestV1AddRecentSnapshotMinSeq, manifest.recent_snapshot_min_seq),
        (schema.ManifestV1AddLastL0Seq, manifest.last_l0_seq),
        (schema.ManifestV1AddLastL0ClockTick, manifest.last_l0_clock_tick),
        (schema.ManifestV1AddWalIdLastSeen, manifest.next_wal_sst_id - 1),
        (schema.ManifestV1AddReplayAfterWalId, manifest.replay_after_wal_id),
        (schema.ManifestV1AddCompactorEpoch, manifest.compactor_epoch),
        (schema.ManifestV1AddWriterEpoch, manifest.writer_epoch),
        (schema.ManifestV1AddSequenceTracker, tracker),
        (schema.ManifestV1AddWalObjectStoreUri, uri),
        (schema.ManifestV1AddCheckpoints, checkpoints),
        (schema.ManifestV1AddCompacted, compacted),
        (schema.ManifestV1AddL0, l0),
        (schema.ManifestV1AddL0LastCompacted, watermark),
        (schema.ManifestV1AddExternalDbs, external_dbs),
        (schema.ManifestV1AddInitialized, manifest.initialized),
    )
    schema.ManifestV1Start(builder)
    for add, value in fields:
        add(builder, value)
    return schema.ManifestV1End(builder)


def _watermark(manifest: Manifest) -> Ulid | None:
    """Return the watermark.  Only the id of the view is always known: version 2 does not store that of the SST."""
    tree = manifest.tree
    view_id = tree.last_compacted_l0_sst_view_id
    return tree.last_compacted_l0_sst_id if view_id is None else view_id


def _write_views(builder: Builder, views: Sequence[SstView]) -> int:
    return write_offsets(builder, [write_sst_v1(builder, view.sst, view.visible_range) for view in views])


def _write_run(builder: Builder, run: SortedRun) -> int:
    ssts = _write_views(builder, run.ssts)
    schema.SortedRunStart(builder)
    schema.SortedRunAddSsts(builder, ssts)
    schema.SortedRunAddId(builder, run.id)
    return schema.SortedRunEnd(builder)
