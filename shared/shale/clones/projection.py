"""Projection: restrict a manifest to some of its keys, without reading or writing any row.

The effect is that of deleting all other keys: a later projection or union never brings them back.

Source: docs/reference/protocol.md 11.1.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from shale.clones.ranges import covered_in_run, is_within, with_stored_start
from shale.errors import InvalidProjection
from shale.protocol.rebase import prune_external_ssts
from shale.types import EVERYTHING, KeyRange, Manifest, Segment, SortedRun, SstView, Tree

SegmentFilter = Callable[[bytes], bool]
"""Returns whether to keep the tree of a prefix; the root tree has the prefix ``b""``."""
SegmentRanges = Callable[[bytes], KeyRange]
"""Returns the keys to keep of a prefix's tree; an unbounded end is the end of the segment."""


def project(
    manifest: Manifest,
    keys: KeyRange | None,
    *,
    segments: SegmentFilter | None = None,
    segment_ranges: SegmentRanges | None = None,
) -> Manifest:
    """Return the manifest restricted to ``keys``; the same object if no restriction is given.

    Args:
        keys: the keys to keep; an empty range keeps nothing.
        segments, segment_ranges: further restrictions for each tree.

    Raises:
        InvalidProjection: ``segment_ranges`` returned a range that is empty or extends beyond its segment.
    """
    if keys is None and segments is None and segment_ranges is None:
        return manifest

    def kept(prefix: bytes, tree: Tree) -> Tree:
        if segments is not None and not segments(prefix):
            return Tree()
        wanted = keys
        if segment_ranges is not None:
            own = _within_segment(prefix, segment_ranges(prefix))
            wanted = own if keys is None else own.intersect(keys)
        return tree if wanted is None else _projected_tree(tree, wanted)

    trees = [Segment(prefix=segment.prefix, tree=kept(segment.prefix, segment.tree)) for segment in manifest.segments]
    projected = prune_external_ssts(
        replace(
            manifest,
            tree=kept(b"", manifest.tree),
            segments=tuple(segment for segment in trees if not segment.tree.is_empty),
        )
    )
    return replace(projected, external_dbs=tuple(entry for entry in projected.external_dbs if entry.sst_ids))


def _within_segment(prefix: bytes, keys: KeyRange) -> KeyRange:
    segment = KeyRange.with_prefix(prefix)
    resolved = KeyRange(
        segment.start if keys.start.key is None else keys.start, segment.end if keys.end.key is None else keys.end
    )
    if resolved.is_empty:
        raise InvalidProjection(f"the range for segment {prefix.hex()} is empty")
    if not is_within(resolved, segment):
        raise InvalidProjection(f"the range for segment {prefix.hex()} holds keys without that prefix")
    return resolved


def _projected_tree(tree: Tree, keys: KeyRange) -> Tree:
    if keys.is_empty:
        return Tree()
    runs = (SortedRun(id=run.id, ssts=tuple(_projected_run(run.ssts, keys))) for run in tree.compacted)
    return replace(
        tree,
        l0=tuple(_cut(tree.l0, (view.effective_range for view in tree.l0), keys)),
        compacted=tuple(run for run in runs if run.ssts),
    )


def _projected_run(views: Sequence[SstView], keys: KeyRange) -> Iterator[SstView]:
    # A view without visible keys has no position in key order.
    shown = [(view, keys_of) for view in views if not (keys_of := view.effective_range).is_empty]
    successors = [*(keys_of for _, keys_of in shown[1:]), None]
    windows = (covered_in_run(view, own, after) for (view, own), after in zip(shown, successors, strict=True))
    return _cut((view for view, _ in shown), windows, keys)


def _cut(views: Iterable[SstView], windows: Iterable[KeyRange], keys: KeyRange) -> Iterator[SstView]:
    """Yield each view restricted to its window and to ``keys``; views without visible keys are dropped."""
    for view, window in zip(views, windows, strict=True):
        visible = with_stored_start(window.intersect(keys))
        projected = replace(view, visible_range=None if visible == EVERYTHING else visible)
        if not projected.effective_range.is_empty:
            yield projected
