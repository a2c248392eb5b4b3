"""What flushing memtables may do to a manifest: pure rules (docs/protocol.md 4.8)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shale.engine.frozen_table import FrozenTable, UploadState
from shale.errors import InvalidClockTick, ProtocolPanic
from shale.format.sequence_tracker import SequenceTracker
from shale.types import Manifest, Segment, Seq, Sst, SstView, Tree, WalId

_EMPTY = Tree()


def gate_reason(
    trees: Mapping[bytes, Tree],
    reserved: Mapping[bytes, int],
    segments: Sequence[bytes],
    *,
    l0_max_ssts: int,
    l0_max_ssts_per_key: int,
) -> str | None:
    """Why a table that touches these segments must wait, ``None``: every tree that it goes to has room.

    Args:
        trees: of the newest manifest by prefix; a segment that is not there yet has an empty one.
        reserved: flushes on their way, by the segments that they touch.
    """
    for prefix in segments:
        tree, under_way = trees.get(prefix, _EMPTY), reserved.get(prefix, 0)
        reason = stall_reason(tree, under_way, l0_max_ssts=l0_max_ssts, l0_max_ssts_per_key=l0_max_ssts_per_key)
        if reason is not None:
            return reason
    return None


def stall_reason(tree: Tree, reserved: int, *, l0_max_ssts: int, l0_max_ssts_per_key: int) -> str | None:
    """Why no further L0 may be added to a tree now; ``None``: it may.

    Args:
        tree: as in the newest manifest.
        reserved: flushes on their way into this tree.
    """
    if len(tree.l0) + reserved >= l0_max_ssts:
        return "num_ssts"
    if deepest_overlap(tree.l0) + reserved >= l0_max_ssts_per_key:
        return "num_ssts_per_key"
    return None


def deepest_overlap(views: Sequence[SstView]) -> int:
    """How many views, at most, can show one and the same key."""
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
    """The tables, oldest first, that the next manifest can take over.

    While the WAL is enabled a manifest must not name rows that are not durable in it.
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
    """The writer's fields after these tables, oldest first, have become L0s.

    Args:
        manifest: before.
        tables: what has been uploaded.
        last_flushed_wal_id: the durable end of the WAL.
        oldest_read_seq: the lowest sequence number at which somebody reads; compactors keep what is visible there.

    Raises:
        InvalidClockTick: a table is older, by the database's clock, than what is in L0 already.
        ProtocolPanic: a table's rows are in L0 already.
    """
    tracker = SequenceTracker.decode(manifest.sequence_tracker)
    for frozen in tables:
        if frozen.last_seq <= manifest.last_l0_seq:
            raise ProtocolPanic("last_l0_seq must increase", was=manifest.last_l0_seq, now=frozen.last_seq)
        if frozen.last_tick < manifest.last_l0_clock_tick:
            raise InvalidClockTick(f"a memtable ends at {frozen.last_tick} ms, behind {manifest.last_l0_clock_tick} ms")
        for seq, second in frozen.tracked:
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
    """Record which WAL ids are in use."""
    return replace(manifest, next_wal_sst_id=WalId(max(manifest.next_wal_sst_id, last_flushed_wal_id + 1)))


def with_wal_end(manifest: Manifest, last_flushed_wal_id: int, committed_seq: int) -> Manifest:
    """Record where the WAL ends, and that nothing in it has to be replayed if all that was committed is in L0.

    A flush alone leaves the file in that range which was written while it froze the memtable, and a database with rows
    in its log can neither be cut nor united (docs/clones.md).
    """
    known = with_wal_frontier(manifest, last_flushed_wal_id)
    if committed_seq > manifest.last_l0_seq:
        return known
    return replace(known, replay_after_wal_id=WalId(max(known.replay_after_wal_id, last_flushed_wal_id)))


def _with_l0s(manifest: Manifest, ssts: Sequence[tuple[bytes, Sst]]) -> Manifest:
    """The manifest with each SST in front of its tree; a segment begins with its first SST."""
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
