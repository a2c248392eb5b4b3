"""What flushing memtables may do to a manifest: pure rules (docs/protocol.md 4.8)."""

from collections.abc import Sequence
from dataclasses import replace

from shale.engine.frozen_table import FrozenTable, UploadState
from shale.errors import InvalidClockTick, ProtocolPanic
from shale.format.sequence_tracker import SequenceTracker
from shale.types import Manifest, Seq, SstView, Tree, WalId


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
        tree = manifest.tree
        if frozen.sst is not None:
            tree = replace(tree, l0=(SstView.identity(frozen.sst), *tree.l0))
        manifest = replace(
            manifest,
            tree=tree,
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
