"""Healing a database that SlateDB has united: L0s that are listed twice become runs (docs/protocol.md 11.3).

Until then no compaction of these L0s may be submitted, handed out or committed: rule V13 sees to that.
"""

from dataclasses import dataclass

from shale.clones.lift import duplicated, lift
from shale.env import Env
from shale_compactor.coordinator.manifest_commit import commit_manifest
from shale_compactor.coordinator.state_view import StateView


@dataclass(frozen=True, slots=True)
class LiftedTree:
    """A tree whose whole L0 list was lifted."""

    prefix: bytes
    l0_count: int


async def heal(view: StateView, env: Env, *, checkpoint_lifetime_s: float) -> tuple[LiftedTree, ...]:
    """Lift what has to be lifted, in one write of the manifest; usually nothing has to be.

    Raises:
        FencedError: another coordinator has taken over.
    """
    manifest = view.manifest.value
    lifted = lift(manifest, view.local)
    if lifted is None:
        return ()
    await commit_manifest(view.manifest, lifted, env, lifetime_s=checkpoint_lifetime_s)
    return tuple(LiftedTree(prefix, len(tree.l0)) for prefix, tree in manifest.trees() if duplicated(tree))
