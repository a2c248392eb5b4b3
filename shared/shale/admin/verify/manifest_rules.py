"""What must hold of one manifest, beside that it can be decoded.  Pure.

Source: docs/format.md 4, docs/protocol.md 3.7 and Appendix B.
"""

from collections.abc import Iterator
from itertools import pairwise

from shale.protocol.manifest_invariants import violations
from shale.types import BoundKind, KeyRange, Manifest, SortedRun, SstView, Tree


def manifest_problems(manifest: Manifest, manifest_id: int) -> Iterator[str]:
    """What is wrong with version ``manifest_id``."""
    yield from violations(manifest)
    for prefix, tree in manifest.trees():
        where = f"segment {prefix!r}: " if prefix else ""
        for problem in _tree_problems(tree, prefix):
            yield where + problem
    if manifest.segment_extractor_name is not None and not manifest.tree.is_empty:
        yield "keys are outside of every segment, although there is an extractor"
    seen = set()
    for checkpoint in manifest.checkpoints:
        if checkpoint.id in seen:
            yield f"checkpoint {checkpoint.id} is listed twice"
        seen.add(checkpoint.id)
        if checkpoint.manifest_id > manifest_id:
            yield f"checkpoint {checkpoint.id} names manifest {checkpoint.manifest_id}, which is newer than this one"


def _tree_problems(tree: Tree, prefix: bytes) -> Iterator[str]:
    ids = [view.id for view in tree.l0]
    for view_id in sorted({view_id for view_id in ids if ids.count(view_id) > 1}):
        yield f"view {view_id} is listed twice in L0"
    for newer, older in pairwise(tree.l0):
        if newer.sst.id.ms < older.sst.id.ms:
            yield f"L0 {newer.sst.id} stands before the newer {older.sst.id}"
    for view in tree.views():
        yield from _view_problems(view, prefix)
    for run in tree.compacted:
        yield from _run_problems(run)


def _view_problems(view: SstView, prefix: bytes) -> Iterator[str]:
    if view.visible_range is not None and view.visible_range.start.kind is BoundKind.EXCLUDED:
        yield f"view {view.id} begins behind a key, which a visible range must not"
    if view.effective_range.is_empty:
        yield f"view {view.id} shows nothing of its SST {view.sst.id}"
    first = view.sst.info.first_entry
    # A projection may show a part of an SST only; what it shows has to lie in the segment.
    shown = view.effective_range.first_key if view.visible_range is not None else first
    if prefix and shown is not None and not shown.startswith(prefix):
        yield f"view {view.id} begins with {shown[:40]!r}, outside of its segment"


def _run_problems(run: SortedRun) -> Iterator[str]:
    for left, right in pairwise(run.ssts):
        if not _follows(left.effective_range, right.effective_range):
            yield f"run {run.id}: {right.sst.id} does not begin behind {left.sst.id}"


def _follows(left: KeyRange, right: KeyRange) -> bool:
    """Neighbours may share one key, whose versions were split."""
    if left.end.key is None or right.start.key is None:
        return False
    return left.end.key <= right.start.key
