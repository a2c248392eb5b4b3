"""Pure rules of flushes: when a table may go to L0, and how the manifest changes (docs/reference/protocol.md 4.8)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shale.engine.memtable.frozen_table import FrozenTable, UploadState
from shale.errors import InvalidClockTick, ProtocolPanic
from shale.format.sequence_tracker import SequenceTracker
from shale.types import Manifest, Segment, Seq, Sst, SstView, Tree, WalId

_EMPTY = Tree()


def table_stall_reason(
    trees: Mapping[bytes, Tree],
    reserved: Mapping[bytes, int],
    segments: Sequence[bytes],
    *,
    l0_max_ssts: int,
    l0_max_ssts_per_key: int,
) -> str | None:
    """Return why a table must wait; ``None``: L0 of all its segments has room.

    Args:
        trees: the trees of the newest manifest, by prefix; a missing segment counts as empty.
        reserved: the number of flushes under way, by segment.
        segments: the segments of the table.
        l0_max_ssts: bound of the SSTs in L0 of one tree.
        l0_max_ssts_per_key: bound of the SSTs in L0 that may hold one key.
    """
    for prefix in segments:
        tree, under_way = trees.get(prefix, _EMPTY), reserved.get(prefix, 0)
        reason = stall_reason(tree, under_way, l0_max_ssts=l0_max_ssts, l0_max_ssts_per_key=l0_max_ssts_per_key)
        if reason is not None:
            return reason
    return None


def stall_reason(tree: Tree, reserved: int, *, l0_max_ssts: int, l0_max_ssts_per_key: int) -> str | None:
    """Return why no SST may be added to L0 of a tree now; ``None``: it may.

    Args:
        tree: the tree in the newest manifest.
        reserved: the number of flushes under way into this tree.
        l0_max_ssts: bound of the SSTs in L0.
        l0_max_ssts_per_key: bound of the SSTs in L0 that may hold one key.
    """
    if len(tree.l0) + reserved >= l0_max_ssts:
        return "num_ssts"
    if deepest_overlap(tree.l0) + reserved >= l0_max_ssts_per_key:
        return "num_ssts_per_key"
    return None


def deepest_overlap(views: Sequence[SstView]) -> int:
    """Return the greatest number of views that can hold the same key."""
    edges: list[tuple[bytes, int]] = []
    open_ended = 0
    for view in views:
        visible = view.effective_range
        if visible.is_empty:
            continue
        edges.append((visible.first_key or b"", 1))
        end = visible.end_key
        if end is None:
            open_ended += 1
        else:
            edges.append((end, -1))
    depth = deepest = 0
    for _, step in sorted(edges):  # an end at a key sorts before a start there: ends are exclusive
        depth += step
        deepest = max(deepest, depth)
    return deepest


def retirable(frozen: Sequence[FrozenTable], durable_seq: int, *, wal_enabled: bool) -> list[FrozenTable]:
    """Return the tables, oldest first, that the next manifest can name.

    With the WAL enabled, a manifest must not name rows that the WAL does not have.
    """
    ready: list[FrozenTable] = []
    for table in frozen:
        if table.state is not UploadState.UPLOADED or (wal_enabled and table.last_seq > durable_seq):
            break
        ready.append(table)
    return ready


def with_flushed(
    manifest: Manifest, tables: Sequence[FrozenTable], *, last_flushed_wal_id: int, oldest_read_seq: int | None = None
) -> Manifest:
    """Return the manifest with the SSTs of flushed tables in L0.

    Args:
        manifest: the state before.
        tables: uploaded tables, oldest first.
        last_flushed_wal_id: the durable end of the WAL.
        oldest_read_seq: the lowest sequence number that a read needs; compactors keep what is visible at it.

    Raises:
        InvalidClockTick: a table is older, by the database's clock, than the newest L0.
        ProtocolPanic: the rows of a table are in L0 already.
    """
    tracker = SequenceTracker.decode(manifest.sequence_tracker)
    for frozen in tables:
        if frozen.last_seq <= manifest.last_l0_seq:
            raise ProtocolPanic("last_l0_seq must increase", was=manifest.last_l0_seq, now=frozen.last_seq)
        if frozen.last_tick < manifest.last_l0_clock_tick:
            raise InvalidClockTick(
                f"a memtable ends at {frozen.last_tick} ms, before the newest L0 at {manifest.last_l0_clock_tick} ms"
            )
        for seq, second in frozen.sequence_points:
            tracker.record(seq, second)
        manifest = replace(
            _with_l0s(manifest, frozen.ssts),
            replay_after_wal_id=WalId(max(manifest.replay_after_wal_id, frozen.replay_after_wal_id)),
            last_l0_clock_tick=frozen.last_tick,
            last_l0_seq=Seq(frozen.last_seq),
            recent_snapshot_min_seq=Seq(frozen.last_seq if oldest_read_seq is None else oldest_read_seq),
        )
    manifest = replace(manifest, sequence_tracker=tracker.encode())
    return with_wal_frontier(manifest, last_flushed_wal_id)


def with_wal_frontier(manifest: Manifest, last_flushed_wal_id: int) -> Manifest:
    """Return the manifest with the next free WAL id."""
    return replace(manifest, next_wal_sst_id=WalId(max(manifest.next_wal_sst_id, last_flushed_wal_id + 1)))


def with_wal_end(manifest: Manifest, last_flushed_wal_id: int, committed_seq: int) -> Manifest:
    """Return the manifest of a clean close: the end of the WAL, and no replay if L0 holds all committed rows.

    A flush alone leaves the WAL file that was written while the memtable was frozen in the range to replay.  A database
    with rows to replay can neither be split nor united (docs/how-to/clones.md).
    """
    known = with_wal_frontier(manifest, last_flushed_wal_id)
    if committed_seq > manifest.last_l0_seq:
        return known
    return replace(known, replay_after_wal_id=WalId(max(known.replay_after_wal_id, last_flushed_wal_id)))


def _with_l0s(manifest: Manifest, ssts: Sequence[tuple[bytes, Sst]]) -> Manifest:
    """Return the manifest with each SST in front of its tree's L0; the first SST of a segment creates the segment."""
    if not ssts:
        return manifest
    trees = dict(manifest.trees())
    for prefix, sst in ssts:
        tree = trees.get(prefix, _EMPTY)
        trees[prefix] = replace(tree, l0=(SstView.identity(sst), *tree.l0))
    root = trees.pop(b"")
    return replace(
        manifest,
        tree=root,
        segments=tuple(Segment(prefix=prefix, tree=trees[prefix]) for prefix in sorted(trees)),
    )
