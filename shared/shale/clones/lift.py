"""Lifting: L0s that cannot be told apart any more become sorted runs of one view each.

Shards of one database share SSTs, and a projection keeps the ids of views, so the L0 list of a union may hold a view or
an SST twice.  L0s, their removal and the watermark are addressed by these ids: a compaction of such a list loses rows.
As runs they have ids of their own, with the same rows in the same order of precedence.

Source: docs/protocol.md 11.2, 11.3.
"""

from collections.abc import Sequence
from dataclasses import replace

from shale.compaction.specs import fresh_run_id, has_duplicate_l0, with_tree
from shale.types import Compactions, Manifest, RunId, SortedRun, SstView, Tree


def duplicated(tree: Tree) -> bool:
    """Whether the L0 list holds a view or an SST twice."""
    return has_duplicate_l0(tree)


def runs_of(views: Sequence[SstView], first_id: int) -> tuple[SortedRun, ...]:
    """A run of one unchanged view for each, newest first: ``first_id + n - 1`` down to ``first_id``."""
    newest = first_id + len(views) - 1
    return tuple(SortedRun(id=RunId(newest - index), ssts=(view,)) for index, view in enumerate(views))


def lift(manifest: Manifest, compactions: Compactions) -> Manifest | None:
    """Lift the whole L0 list of every tree that needs it; ``None`` if none does.

    Only a coordinator may do this to a database at work: the watermark becomes the front view, so a flush that comes in
    meanwhile stays in L0, and the new ids are above those of all runs and of all that active compactions will make.
    """
    lifted = manifest
    for prefix, tree in manifest.trees():
        if duplicated(tree):
            lifted = with_tree(lifted, prefix, _lifted(tree, fresh_run_id(lifted, compactions)))
    return None if lifted is manifest else lifted


def _lifted(tree: Tree, first_id: int) -> Tree:
    front = tree.l0[0]
    return replace(
        tree,
        l0=(),
        compacted=(*runs_of(tree.l0, first_id), *tree.compacted),
        last_compacted_l0_sst_view_id=front.id,
        last_compacted_l0_sst_id=front.sst.id,
    )
