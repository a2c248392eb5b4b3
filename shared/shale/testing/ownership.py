"""Checks which role may change which field of a manifest from one version to the next.

Source: docs/reference/protocol.md 3.3, Appendix B 5, 9, 15.
"""

from dataclasses import replace
from itertools import pairwise

from shale.testing.mutation_log import Mutation
from shale.types import Checkpoint, Manifest, SstView, Tree
from shale.types.writer_sign import challenged_epoch

_WRITERS_FIELDS = (
    "initialized",
    "segment_extractor_name",
    "next_wal_sst_id",
    "replay_after_wal_id",
    "last_l0_clock_tick",
    "last_l0_seq",
    "recent_snapshot_min_seq",
    "sequence_tracker",
)
_EMPTY = Tree()


def _is_of_writers(entry: Checkpoint) -> bool:
    """Whether only writers remove a checkpoint: their own, and the challenges that these answer."""
    return entry.writer_epoch is not None or challenged_epoch(entry.name) is not None


def check_step(base: Manifest, new: Manifest, mutation: Mutation, *, union: bool = False) -> None:
    """Check one step by the role of the process that made it; other roles may only change checkpoints.

    ``union``: an L0 may be listed twice, as in a union that SlateDB made.
    """
    _check_shape(new, mutation, union=union)
    assert new.writer_epoch >= base.writer_epoch, f"{mutation}: writer_epoch falls"
    assert new.compactor_epoch >= base.compactor_epoch, f"{mutation}: compactor_epoch falls"
    if mutation.role != "writer":
        _same(base, new, _WRITERS_FIELDS, mutation)
        assert new.writer_epoch == base.writer_epoch, f"{mutation}: only a writer claims writer_epoch"
    if mutation.role != "compactor":
        assert new.compactor_epoch == base.compactor_epoch, f"{mutation}: only a compactor claims compactor_epoch"
    if mutation.role in {"writer", "compactor"}:
        dropped = [
            str(entry.id)
            for entry in base.checkpoints
            if new.checkpoint(entry.id) is None and not (mutation.role == "writer" and _is_of_writers(entry))
        ]
        assert not dropped, f"{mutation}: a {mutation.role} dropped the checkpoints {dropped}"
    for prefix in sorted({name for manifest in (base, new) for name, _ in manifest.trees()}):
        old_tree, new_tree = base.tree_of(prefix), new.tree_of(prefix)
        if mutation.role == "writer":
            _check_writers_tree(old_tree or _EMPTY, new_tree or _EMPTY, mutation)
        elif mutation.role == "compactor":
            assert (old_tree is None) == (new_tree is None), f"{mutation}: a compactor follows the segments"
            _check_compactors_tree(old_tree or _EMPTY, new_tree or _EMPTY, mutation)
        else:
            is_same = _of_any_version(old_tree) == _of_any_version(new_tree)
            assert is_same, f"{mutation}: a {mutation.role} must not change the tree {prefix!r}"


def _of_any_version(tree: Tree | None) -> Tree | None:
    """Return the tree without the watermark's SST id, which only manifests of version 1 store, as that of its view."""
    if tree is None or tree.last_compacted_l0_sst_view_id is None:
        return tree
    return replace(tree, last_compacted_l0_sst_id=None)


def _check_writers_tree(base: Tree, new: Tree, mutation: Mutation) -> None:
    assert base.compacted == new.compacted, f"{mutation}: a writer changed runs"
    assert base.last_compacted_l0_sst_view_id == new.last_compacted_l0_sst_view_id or not new.l0 + new.compacted, (
        f"{mutation}: a writer changed the watermark"
    )
    kept = new.l0[len(new.l0) - len(base.l0) :] if len(new.l0) >= len(base.l0) else None
    assert kept == base.l0, f"{mutation}: a writer may only put L0s in front: {_ids(base.l0)} -> {_ids(new.l0)}"


def _check_compactors_tree(base: Tree, new: Tree, mutation: Mutation) -> None:
    kept = base.l0[: len(new.l0)]
    assert kept == new.l0, f"{mutation}: a compactor may only take L0s from the end: {_ids(base.l0)} -> {_ids(new.l0)}"
    if len(new.l0) < len(base.l0):
        newest_taken = base.l0[len(new.l0)].id
        assert new.last_compacted_l0_sst_view_id == newest_taken, f"{mutation}: the watermark is not {newest_taken}"


def _check_shape(manifest: Manifest, mutation: Mutation, *, union: bool) -> None:
    runs = [run.id for _, tree in manifest.trees() for run in tree.compacted]
    assert len(runs) == len(set(runs)), f"{mutation}: run ids repeat: {runs}"
    for _, tree in manifest.trees():
        assert all(left.id > right.id for left, right in pairwise(tree.compacted)), f"{mutation}: runs do not descend"
        view_ids, sst_ids = [view.id for view in tree.l0], [view.sst.id for view in tree.l0]
        assert union or len(view_ids) == len(set(view_ids)), f"{mutation}: L0 view ids repeat: {_ids(tree.l0)}"
        assert tree.last_compacted_l0_sst_view_id not in view_ids, f"{mutation}: the watermark's L0 is still there"
        assert union or len(sst_ids) == len(set(sst_ids)), f"{mutation}: L0 SST ids repeat: {_ids(tree.l0)}"
        in_order = all(newer.ms >= older.ms for newer, older in pairwise(sst_ids))
        assert union or in_order, f"{mutation}: L0 times are not in order"
    prefixes = [segment.prefix for segment in manifest.segments]
    assert prefixes == sorted(prefixes), f"{mutation}: segments are not in order"
    assert not any(right.startswith(left) for left, right in pairwise(prefixes)), f"{mutation}: segments nest"
    assert manifest.replay_after_wal_id < manifest.next_wal_sst_id, f"{mutation}: replay_after reaches next_wal_sst_id"


def _same(base: Manifest, new: Manifest, fields: tuple[str, ...], mutation: Mutation) -> None:
    for name in fields:
        old, now = getattr(base, name), getattr(new, name)
        assert old == now, f"{mutation}: a {mutation.role} changed {name} from {old!r} to {now!r}"


def _ids(views: tuple[SstView, ...]) -> list[str]:
    return [str(view.id) for view in views]
