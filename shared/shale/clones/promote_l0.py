"""Promote L0s to sorted runs of one view each, if the L0 list of a tree has duplicates.

Shards of one database share SSTs, and a projection keeps the ids of views, so the L0 list of a union may have a view
or an SST twice.  L0 sources and the watermark are addressed by these ids: a compaction of such a list loses rows.
As runs they have unique ids, with the same rows in the same order of precedence.

Source: docs/reference/protocol.md 11.2, 11.3.
"""

from collections.abc import Sequence
from dataclasses import replace

from shale.compaction.specs import fresh_run_id, has_duplicate_l0, with_tree
from shale.types import Compactions, Manifest, RunId, SortedRun, SstView, Tree


def duplicated(tree: Tree) -> bool:
    """Return whether the L0 list has a view or an SST twice."""
    return has_duplicate_l0(tree)


def runs_of(views: Sequence[SstView], first_id: int) -> tuple[SortedRun, ...]:
    """Return a run for each view, newest first, with ids from ``first_id + n - 1`` down to ``first_id``."""
    newest = first_id + len(views) - 1
    return tuple(SortedRun(id=RunId(newest - index), ssts=(view,)) for index, view in enumerate(views))


def promote_l0(manifest: Manifest, compactions: Compactions) -> Manifest | None:
    """Promote the whole L0 list of each tree with duplicates; return ``None`` if there is none.

    Only a coordinator may do this to a running database.  The watermark becomes the newest promoted view, so a
    concurrent flush stays in L0.  The new run ids are above all existing runs and all outputs of active compactions.
    """
    promoted = manifest
    for prefix, tree in manifest.trees():
        if duplicated(tree):
            promoted = with_tree(promoted, prefix, _promoted(tree, fresh_run_id(promoted, compactions)))
    return None if promoted is manifest else promoted


def _promoted(tree: Tree, first_id: int) -> Tree:
    front = tree.l0[0]
    return replace(
        tree,
        l0=(),
        compacted=(*runs_of(tree.l0, first_id), *tree.compacted),
        last_compacted_l0_sst_view_id=front.id,
        last_compacted_l0_sst_id=front.sst.id,
    )
