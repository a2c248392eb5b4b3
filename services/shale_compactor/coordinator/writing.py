"""Storing what a coordinator has decided, in the order in which a crash does no harm (docs/protocol.md 6.1).

The manifest is written before the compactions, always: a job that the compactions call Completed is then in the
manifest.  After a crash between the two the job is still Compacted, and the next coordinator recognises its result.
"""

from collections.abc import Iterable
from dataclasses import replace

from shale.compaction.entries import retained
from shale.env import Env
from shale.errors import ObjectVersionExists
from shale.protocol.versioned import Versioned
from shale.types import Compaction, Compactions, Manifest
from shale_compactor.coordinator.manifest_commit import commit_manifest
from shale_compactor.coordinator.state_view import StateView


async def write_both(
    view: StateView,
    manifest: Manifest,
    compactions: Compactions,
    env: Env,
    *,
    checkpoint_lifetime_s: float,
    reclaimed: Iterable[Compaction] = (),
) -> None:
    """Store a decision; nothing is written to a file that need not change.

    Args:
        manifest: the very object that ``view`` holds if the trees stay as they are.
        compactions: the new local state.
        reclaimed: what it takes back from silent workers, as it was.

    Raises:
        FencedError: another coordinator has taken over.
    """
    view.local = compactions
    if manifest is not view.manifest.value:
        await commit_manifest(view.manifest, manifest, env, lifetime_s=checkpoint_lifetime_s)
    await store_compactions(view, reclaimed)


async def store_compactions(view: StateView, reclaimed: Iterable[Compaction] = ()) -> None:
    """Store the local state, after adopting whatever workers and admins have stored meanwhile."""
    conflicts = 0
    while True:
        try:
            await store_once(view)
        except ObjectVersionExists:
            conflicts += 1
            await view.compactions.recover(conflicts)
            view.merge(reclaimed)
        else:
            return


async def store_once(view: StateView) -> None:
    """Store the local state on top of the version at hand.

    Raises:
        ObjectVersionExists: that is not the newest version any more.
    """
    base = view.compactions.prepare_dirty()
    wanted = retained(replace(view.local, compactor_epoch=view.compactions.epoch))
    if wanted != base.value:
        await view.compactions.update(Versioned(base.id, wanted))
    # Everybody who writes from here on builds on a version without the forgotten entries.
    view.local = wanted
