"""Write the coordinator's decisions in a crash-safe order (docs/reference/protocol.md 6.1).

The manifest is always written before the compactions: the result of a Completed job is then in the manifest.  After a
crash between the two writes the job is still Compacted, and the next coordinator finds its result in the manifest.
"""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from shale.clones.promote_l0 import duplicated, promote_l0
from shale.compaction.entries import retained
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import ObjectVersionExists
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.manifest_store import FenceableManifest
from shale.protocol.rebase import rebase_compactor
from shale.protocol.versioned import Versioned
from shale.types import Compaction, Compactions, Manifest
from shale_compactor.coordinator.state import CoordinatorState


async def commit_manifest(manifest: FenceableManifest, wanted: Manifest, env: Env, *, lifetime_s: float) -> None:
    """Commit the trees of ``wanted`` on top of the newest version.

    Raises:
        FencedError: another coordinator has taken over; nothing was written after it.
    """
    pin: UUID | None = None
    conflicts = 0
    while True:
        if lifetime_s and not (pin and _still_pins(manifest.value, pin, env.clock.now_ms(), lifetime_s)):
            pin = (await create_checkpoint(manifest, env, lifetime_ms=int(lifetime_s * 1000))).id
        base = manifest.prepare_dirty()
        try:
            await manifest.update(Versioned(base.id, rebase_compactor(wanted, base.value)))
        except ObjectVersionExists:
            # Reuse the checkpoint: only this coordinator removes inputs, so it still pins them.
            conflicts += 1
            await manifest.recover(conflicts)
        else:
            return


def _still_pins(manifest: Manifest, pin: UUID, now_ms: int, lifetime_s: float) -> bool:
    """Return whether the checkpoint exists and has at least half of its lifetime left."""
    checkpoint = manifest.checkpoint(pin)
    return checkpoint is not None and checkpoint.expire_s * 1000 - now_ms >= lifetime_s * 500


async def write_both(
    view: CoordinatorState,
    manifest: Manifest,
    compactions: Compactions,
    env: Env,
    *,
    checkpoint_lifetime_s: float,
    reclaimed: Iterable[Compaction] = (),
) -> None:
    """Write a decision; an unchanged file is not written.

    Args:
        manifest: the same object as in ``view`` if the trees do not change.
        compactions: the new local state.
        reclaimed: entries that the decision takes from silent workers, as they were before.

    Raises:
        FencedError: another coordinator has taken over.
    """
    view.local = compactions
    if manifest is not view.manifest.value:
        await commit_manifest(view.manifest, manifest, env, lifetime_s=checkpoint_lifetime_s)
    await store_compactions(view, reclaimed)


async def store_compactions(view: CoordinatorState, reclaimed: Iterable[Compaction] = ()) -> None:
    """Write the local state; after a conflict, merge the stored changes first."""
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


async def store_once(view: CoordinatorState) -> None:
    """Write the local state on top of the current version.

    Raises:
        ObjectVersionExists: there is a newer version.
    """
    base = view.compactions.prepare_dirty()
    wanted = retained(replace(view.local, compactor_epoch=view.compactions.epoch))
    if wanted != base.value:
        await view.compactions.update(Versioned(base.id, wanted))
    # All later writes are based on a version without the dropped entries, so they cannot come back.
    view.local = wanted


@dataclass(frozen=True, slots=True)
class PromotedTree:
    """A tree whose L0s were promoted to runs."""

    prefix: bytes
    l0_count: int


async def repair_duplicate_l0(
    view: CoordinatorState, env: Env, *, checkpoint_lifetime_s: float
) -> tuple[PromotedTree, ...]:
    """Promote the L0s of each tree with duplicates in one manifest write; does nothing if there are none.

    Raises:
        FencedError: another coordinator has taken over.
    """
    manifest = view.manifest.value
    promoted = promote_l0(manifest, view.local)
    if promoted is None:
        return ()
    await commit_manifest(view.manifest, promoted, env, lifetime_s=checkpoint_lifetime_s)
    return tuple(PromotedTree(prefix, len(tree.l0)) for prefix, tree in manifest.trees() if duplicated(tree))
