"""Differences between two versions of a manifest."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from shale.admin.json_values import rfc3339
from shale.core.lazy_dataclass import dataclass
from shale.format.sequence_tracker import SequenceTracker
from shale.types import Checkpoint, ExternalDb, Manifest, SortedRun, SstView, Tree

T = TypeVar("T")
_EMPTY = Tree()
_FIELDS = (
    "initialized",
    "writer_epoch",
    "compactor_epoch",
    "replay_after_wal_id",
    "next_wal_sst_id",
    "last_l0_seq",
    "last_l0_clock_tick",
    "recent_snapshot_min_seq",
    "segment_extractor_name",
    "wal_object_store_uri",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference.

    Args:
        what: ``field``, ``l0``, ``run``, ``watermark``, ``segment``, ``checkpoint`` or ``external_db``.
        name: name or id of the changed part.
        segment: prefix of its tree.
        before, after: the values; ``None`` if it did not exist before or does not exist after.
    """

    what: str
    name: str
    segment: bytes = b""
    before: object = None
    after: object = None

    @property
    def kind(self) -> str:
        """``added``, ``removed`` or ``changed``."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def diff(old: Manifest, new: Manifest) -> Iterator[Change]:
    """Yield the differences from ``old`` to ``new``: fields, trees by prefix, checkpoints, external databases."""
    for name in _FIELDS:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            yield Change(what="field", name=name, before=before, after=after)
    if old.sequence_tracker != new.sequence_tracker:
        points = [len(SequenceTracker.decode(manifest.sequence_tracker).points) for manifest in (old, new)]
        yield Change(what="field", name="sequence_tracker_points", before=points[0], after=points[1])
    for prefix in sorted({prefix for manifest in (old, new) for prefix, _ in manifest.trees()}):
        yield from _diff_trees(prefix, old.tree_of(prefix), new.tree_of(prefix))
    yield from _diff_listed("checkpoint", old.checkpoints, new.checkpoints, lambda each: str(each.id), _checkpoint)
    yield from _diff_listed("external_db", old.external_dbs, new.external_dbs, _external_name, _external)


def _diff_trees(prefix: bytes, old: Tree | None, new: Tree | None) -> Iterator[Change]:
    if old is None or new is None:
        yield Change(what="segment", name=prefix.hex(), segment=prefix, before=_tree(old), after=_tree(new))
    before, after = old or _EMPTY, new or _EMPTY
    yield from _diff_listed("l0", before.l0, after.l0, lambda view: str(view.id), _view, segment=prefix)
    yield from _diff_listed("run", before.compacted, after.compacted, lambda run: str(run.id), _run, segment=prefix)
    marks = [tree.last_compacted_l0_sst_view_id for tree in (before, after)]
    if marks[0] != marks[1]:
        texts = [None if mark is None else str(mark) for mark in marks]
        yield Change(what="watermark", name="last_compacted_l0", segment=prefix, before=texts[0], after=texts[1])


def _diff_listed(
    what: str,
    old: Iterable[T],
    new: Iterable[T],
    name_of: Callable[[T], str],
    shown: Callable[[T], str],
    *,
    segment: bytes = b"",
) -> Iterator[Change]:
    """Yield removed and changed entries, then added ones, in the order of the lists."""
    before, after = {name_of(each): each for each in old}, {name_of(each): each for each in new}
    for name, each in before.items():
        if name not in after:
            yield Change(what=what, name=name, segment=segment, before=shown(each))
        elif after[name] != each:
            yield Change(what=what, name=name, segment=segment, before=shown(each), after=shown(after[name]))
    for name, each in after.items():
        if name not in before:
            yield Change(what=what, name=name, segment=segment, after=shown(each))


def _tree(tree: Tree | None) -> str | None:
    return None if tree is None else f"{len(tree.l0)} L0, {len(tree.compacted)} runs"


def _view(view: SstView) -> str:
    cut = "" if view.visible_range is None else ", cut"
    return f"SST {view.sst.id}, {view.sst.estimated_size_bytes} bytes{cut}"


def _run(run: SortedRun) -> str:
    return f"{len(run.ssts)} SSTs, {run.estimated_size_bytes} bytes"


def _checkpoint(checkpoint: Checkpoint) -> str:
    end = f"until {rfc3339(checkpoint.expire_s * 1000)}" if checkpoint.expire_s else "for ever"
    return f"manifest {checkpoint.manifest_id}, {end}" + (f", {checkpoint.name}" if checkpoint.name else "")


def _external_name(external: ExternalDb) -> str:
    return f"{external.path}@{external.source_checkpoint_id}"


def _external(external: ExternalDb) -> str:
    return f"{len(external.sst_ids)} SSTs, kept by {external.final_checkpoint_id}"
