"""Writing new runs into the manifest without losing anybody's work (docs/protocol.md 6.10, write_manifest_safely).

Readers of an older version may still need the inputs, so a checkpoint on the version that references them is
committed first; collectors then leave them alone for its lifetime.
"""

from uuid import UUID

from shale.env import Env
from shale.errors import ObjectVersionExists
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.manifest_store import FenceableManifest
from shale.protocol.rebase import rebase_compactor
from shale.protocol.versioned import Versioned
from shale.types import Manifest


async def commit_manifest(manifest: FenceableManifest, wanted: Manifest, env: Env, *, lifetime_s: float) -> None:
    """Commit the trees of ``wanted`` on top of whatever others have committed meanwhile.

    Raises:
        FencedError: another coordinator has taken over; nothing was written after it.
    """
    pin: UUID | None = None
    conflicts = 0
    while True:
        if pin is None or not _still_pins(manifest.value, pin, env.clock.now_ms(), lifetime_s):
            pin = (await create_checkpoint(manifest, env, lifetime_ms=int(lifetime_s * 1000))).id
        base = manifest.prepare_dirty()
        try:
            await manifest.update(Versioned(base.id, rebase_compactor(wanted, base.value)))
        except ObjectVersionExists:
            # The checkpoint of this attempt serves the next one: only we remove inputs, so they are still pinned.
            conflicts += 1
            await manifest.recover(conflicts)
        else:
            return


def _still_pins(manifest: Manifest, pin: UUID, now_ms: int, lifetime_s: float) -> bool:
    """Whether the checkpoint is listed and has at least half of its lifetime left."""
    checkpoint = manifest.checkpoint(pin)
    return checkpoint is not None and checkpoint.expire_s * 1000 - now_ms >= lifetime_s * 500
