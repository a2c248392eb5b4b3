"""Merges concurrent changes of a manifest, so that each process keeps the other's work.

The writer owns the front of every L0 list and the WAL fields, the compactor owns the runs and the watermarks, and
any process may change checkpoints.  The loser of a conflict takes the newer version and puts its own fields on top.

Source: docs/reference/protocol.md 3.3-3.6; SlateDB slatedb/src/manifest/mod.rs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from shale.errors import ProtocolPanic
from shale.types import ExternalDb, Manifest, Segment, SstView, Tree

_EMPTY = Tree()


def rebase_writer(local: Manifest, remote: Manifest) -> Manifest:
    """Apply the writer's state to a newer version: its own fields, the compactor's runs, all checkpoints.

    Drops segments without L0 and runs, which only the writer does.
    """

    ours, theirs = _segment_trees(local), _segment_trees(remote)
    segments = _segments(sorted(ours | theirs), writer=ours, compactor=theirs)
    return prune_external_ssts(
        replace(
            remote,
            initialized=local.initialized,
            segment_extractor_name=local.segment_extractor_name,
            next_wal_sst_id=local.next_wal_sst_id,
            replay_after_wal_id=local.replay_after_wal_id,
            last_l0_clock_tick=local.last_l0_clock_tick,
            last_l0_seq=local.last_l0_seq,
            recent_snapshot_min_seq=local.recent_snapshot_min_seq,
            sequence_tracker=local.sequence_tracker,
            wal_object_store_uri=local.wal_object_store_uri,
            tree=merge_trees(writer=local.tree, compactor=remote.tree),
            segments=tuple(segment for segment in segments if not segment.tree.is_empty),
        )
    )


def rebase_compactor(local: Manifest, remote: Manifest) -> Manifest:
    """Apply the compactor's runs and watermarks to a newer version.

    A segment that only the compactor has must be the empty rest of a drain, which the writer has pruned.

    Raises:
        ProtocolPanic: such a segment holds data.
    """
    ours, theirs = _segment_trees(local), _segment_trees(remote)
    for prefix, tree in ours.items():
        if prefix not in theirs and not tree.is_empty:
            raise ProtocolPanic("the writer pruned a segment that holds data", prefix=prefix.hex())
    return prune_external_ssts(
        replace(
            remote,
            wal_object_store_uri=local.wal_object_store_uri,
            tree=merge_trees(writer=remote.tree, compactor=local.tree),
            segments=_segments(sorted(theirs), writer=theirs, compactor=ours),
        )
    )


def merge_trees(*, writer: Tree, compactor: Tree) -> Tree:
    """Return the writer's L0s that compaction has not consumed, and the compactor's runs.

    L0s from the watermark on were consumed; therefore compactions must consume the end of the L0 list.
    """
    l0 = tuple(_in_front_of_watermark(writer.l0, compactor))
    # An unchanged tree stays the same object: comparing it, and writing it again, then costs little.
    return compactor if l0 == compactor.l0 else replace(compactor, l0=l0)


def _in_front_of_watermark(views: Iterable[SstView], compactor: Tree) -> Iterable[SstView]:
    view_id, sst_id = compactor.last_compacted_l0_sst_view_id, compactor.last_compacted_l0_sst_id
    for view in views:
        # The SST id decides only where no view id is known: another view of the same SST is other data.
        if view.id == view_id if view_id is not None else view.sst.id == sst_id:
            return
        yield view


def prune_external_ssts(manifest: Manifest) -> Manifest:
    """Drop the ids of external SSTs that have no view; the entries stay for the detach task."""
    if not manifest.external_dbs:
        return manifest
    used = manifest.ssts()

    def pruned(external: ExternalDb) -> ExternalDb:
        return replace(external, sst_ids=tuple(sst_id for sst_id in external.sst_ids if sst_id in used))

    return replace(manifest, external_dbs=tuple(pruned(external) for external in manifest.external_dbs))


def _segment_trees(manifest: Manifest) -> dict[bytes, Tree]:
    return {segment.prefix: segment.tree for segment in manifest.segments}


def _segments(
    prefixes: Sequence[bytes], *, writer: Mapping[bytes, Tree], compactor: Mapping[bytes, Tree]
) -> tuple[Segment, ...]:
    trees = (merge_trees(writer=writer.get(each, _EMPTY), compactor=compactor.get(each, _EMPTY)) for each in prefixes)
    return tuple(Segment(prefix=prefix, tree=tree) for prefix, tree in zip(prefixes, trees, strict=True))
