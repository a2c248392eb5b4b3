"""What must hold of one manifest, beside that it can be decoded, and of the step from one to the next.  Pure.

Source: docs/format.md 4, docs/protocol.md 3.7 and Appendix B.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from shale.errors import CorruptionError
from shale.format.sequence_tracker import SequenceTracker
from shale.protocol.manifest_invariants import violations
from shale.sst.verify.codes import Code
from shale.types import KeyRange, Manifest, SortedRun, SstView, Tree, Ulid

_KEY_SHOWN_MAX = 40


class Problem(NamedTuple):
    """What is wrong with a version."""

    code: Code
    what: str


def manifest_problems(manifest: Manifest, manifest_id: int, root: str) -> Iterator[Problem]:
    """What is wrong with version ``manifest_id`` of the database at ``root``."""
    yield from (Problem(Code.INVARIANT, what) for what in violations(manifest))
    for prefix, tree in manifest.trees():
        where = f"segment {prefix!r}: " if prefix else ""
        for code, what in _tree_problems(tree, prefix):
            yield Problem(code, where + what)
    if manifest.segment_extractor_name is not None and not manifest.tree.is_empty:
        yield Problem(Code.SEGMENT_ROWS, "keys are outside of every segment, although there is an extractor")
    yield from _checkpoint_problems(manifest, manifest_id)
    yield from _borrowing_problems(manifest, root)
    try:
        SequenceTracker.decode(manifest.sequence_tracker)
    except CorruptionError as error:
        yield Problem(Code.SEQUENCE_TRACKER, error.message)


_NEVER_DECREASING: dict[str, Callable[[Manifest], int]] = {
    "writer_epoch": lambda manifest: manifest.writer_epoch,
    "compactor_epoch": lambda manifest: manifest.compactor_epoch,
    "replay_after_wal_id": lambda manifest: manifest.replay_after_wal_id,
    "next_wal_sst_id": lambda manifest: manifest.next_wal_sst_id,
    "last_l0_seq": lambda manifest: manifest.last_l0_seq,
}


def step_problems(older: Manifest, newer: Manifest, older_id: int) -> Iterator[Problem]:
    """What a version takes back of an earlier one; trees are not looked at."""
    for name, value in _NEVER_DECREASING.items():
        if value(newer) < value(older):
            what = f"{name} falls from {value(older)} in version {older_id} to {value(newer)}"
            yield Problem(Code.VERSION_STEP, what)


def _checkpoint_problems(manifest: Manifest, manifest_id: int) -> Iterator[Problem]:
    seen = set()
    for checkpoint in manifest.checkpoints:
        if checkpoint.id in seen:
            yield Problem(Code.CHECKPOINT_DUPLICATE, f"checkpoint {checkpoint.id} is listed twice")
        seen.add(checkpoint.id)
        if checkpoint.manifest_id > manifest_id:
            what = f"checkpoint {checkpoint.id} names manifest {checkpoint.manifest_id}, which is newer than this one"
            yield Problem(Code.CHECKPOINT_AHEAD, what)


def _borrowing_problems(manifest: Manifest, root: str) -> Iterator[Problem]:
    paths: dict[Ulid, str] = {}
    for external in manifest.external_dbs:
        if external.path == root and external.sst_ids:
            yield Problem(Code.SST_COLLISION, "the database borrows from itself")
        for sst_id in external.sst_ids:
            known = paths.setdefault(sst_id, external.path)
            if known != external.path:
                what = f"SST {sst_id} is borrowed both from {known} and from {external.path}"
                yield Problem(Code.SST_COLLISION, what)


def _tree_problems(tree: Tree, prefix: bytes) -> Iterator[Problem]:
    yield from _l0_problems(tree)
    for view in tree.views():
        yield from _view_problems(view, prefix)
    for run in tree.compacted:
        yield from _run_problems(run)


def _l0_problems(tree: Tree) -> Iterator[Problem]:
    for noun, ids in (("view", [view.id for view in tree.l0]), ("SST", [view.sst.id for view in tree.l0])):
        twice = sorted(each for each, count in Counter(ids).items() if count > 1)
        for each in twice:
            yield Problem(Code.L0_DUPLICATE, f"{noun} {each} is listed twice in L0")
        if twice:
            break  # an SST that is there twice because its view is
    mark = tree.last_compacted_l0_sst_view_id
    if mark is not None and any(view.id == mark for view in tree.l0):
        yield Problem(Code.WATERMARK, f"L0 {mark} is marked as compacted, and still listed")
    yield from _l0_disorder(tree.l0)


def _l0_disorder(l0: tuple[SstView, ...]) -> Iterator[Problem]:
    """Shards of a union have times of their own, so only those count that show the same keys."""
    for place, older in enumerate(l0):
        shown = older.effective_range
        for newer in l0[:place]:
            if newer.sst.id.ms < older.sst.id.ms and not newer.effective_range.intersect(shown).is_empty:
                yield Problem(Code.L0_ORDER, f"L0 {newer.sst.id} stands before the newer {older.sst.id}")
                break


def _view_problems(view: SstView, prefix: bytes) -> Iterator[Problem]:
    first = view.sst.info.first_entry
    # A projection may show a part of an SST only; what it shows has to lie in the segment.
    shown = view.effective_range.first_key if view.visible_range is not None else first
    if prefix and shown is not None and not shown.startswith(prefix):
        what = f"view {view.id} begins with {shown[:_KEY_SHOWN_MAX]!r}, outside of its segment"
        yield Problem(Code.SEGMENT_ROWS, what)


def _run_problems(run: SortedRun) -> Iterator[Problem]:
    for left, right in pairwise(run.ssts):
        if not _follows(left.effective_range, right.effective_range):
            yield Problem(Code.RUN_OVERLAP, f"run {run.id}: {right.sst.id} does not begin behind {left.sst.id}")


def _follows(left: KeyRange, right: KeyRange) -> bool:
    """Neighbours may share one key, whose versions were split."""
    if left.end.key is None or right.start.key is None:
        return False
    return left.end.key <= right.start.key
