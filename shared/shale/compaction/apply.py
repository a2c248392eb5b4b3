"""Apply a finished compaction to its tree (docs/reference/protocol.md 6.8, 6.10).

Only the tree is changed; the coordinator updates the rest of the manifest, such as the ids of external SSTs.
"""

import itertools
from dataclasses import replace

from shale.compaction.specs import with_tree
from shale.types import DrainSpec, Manifest, SortedRun, SstView, TieredSpec, Tree


def with_run(manifest: Manifest, spec: TieredSpec, views: tuple[SstView, ...]) -> Manifest:
    """Replace the sources by the run ``destination`` with ``views``."""
    tree = manifest.tree_of(spec.segment)
    assert tree is not None, "validated"
    output = SortedRun(id=spec.destination, ssts=views)
    gone = {*spec.sorted_runs, spec.destination}
    kept = [run for run in tree.compacted if run.id not in gone]
    compacted = (
        *(run for run in kept if run.id > spec.destination),
        output,
        *(run for run in kept if run.id < spec.destination),
    )
    assert _strictly_descending(compacted), f"runs {[run.id for run in compacted]} do not descend"
    return _with_consumed(manifest, spec, tree, compacted)


def without_drained(manifest: Manifest, spec: DrainSpec) -> Manifest:
    """Remove the drained sources; the segment's entry is kept, because only the writer prunes segments."""
    tree = manifest.tree_of(spec.segment)
    assert tree is not None, "validated"
    kept = tuple(run for run in tree.compacted if run.id not in spec.sorted_runs)
    return _with_consumed(manifest, spec, tree, kept)


def _with_consumed(
    manifest: Manifest, spec: TieredSpec | DrainSpec, tree: Tree, compacted: tuple[SortedRun, ...]
) -> Manifest:
    """Remove the consumed L0s and move the watermark to the newest of them."""
    taken = [view for view in tree.l0 if view.id in spec.l0_view_ids]
    tree = replace(tree, l0=tuple(view for view in tree.l0 if view.id not in spec.l0_view_ids), compacted=compacted)
    if taken:
        tree = replace(tree, last_compacted_l0_sst_view_id=taken[0].id, last_compacted_l0_sst_id=taken[0].sst.id)
    return with_tree(manifest, spec.segment, tree)


def _strictly_descending(runs: tuple[SortedRun, ...]) -> bool:
    return all(left.id > right.id for left, right in itertools.pairwise(runs))
