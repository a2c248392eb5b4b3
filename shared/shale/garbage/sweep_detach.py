"""Letting go of parents that a clone no longer reads.

The parent's checkpoint goes first, then our entry: a stop in between leaves an entry whose checkpoint is gone
already, and the next pass finishes.  The other order would leak the parent's checkpoint for ever.
"""

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

from shale.errors import ProtocolPanic, ShaleError
from shale.garbage.database import Database
from shale.garbage.doomed import Doomed
from shale.garbage.passes import Pass
from shale.garbage.planner import plan_detach
from shale.protocol.checkpoints import release_checkpoints
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import is_destroyed
from shale.protocol.transactional import Stored
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import ExternalDb, Manifest

WHY = "a parent that no version reads"
log = get_logger("gc")


async def sweep_detach(database: Database, this: Pass) -> None:
    """Release the checkpoints of unused parents and drop their entries.

    Raises:
        ManifestMissing: the manifest of a checkpoint is gone, and it may still read a parent.
    """
    latest = await database.manifests.read_latest()
    checkpointed = [manifest async for _, manifest in database.checkpointed(latest, trees=False)]
    unused = [
        external
        for external in plan_detach(latest.value, checkpointed)
        if this.only is None or _key(external) in this.only
    ]
    this.plan([Doomed(0, _key(external), 0, this.now_ms) for external in unused], WHY)
    if not unused:
        return
    if this.options.dry_run:
        log.info(Event.GC_PLAN, resource=this.task.value, count=len(unused), bytes=0, boundary=None)
        return
    released = [external for external in unused if await _release(database, external, this)]
    if not released:
        return
    ids = frozenset(external.final_checkpoint_id for external in released)
    stored = Stored(database.manifests, latest, database.env)
    await stored.apply(lambda current: _without(current.value, ids))
    for external in released:
        this.instruments.detached()
        this.instruments.deleted(this.task, 1, 0)
        this.progress.deleted += 1
        log.info(Event.CLONE_DETACHED, path=external.path, checkpoint_id=str(external.final_checkpoint_id))


def _key(external: ExternalDb) -> str:
    """What a plan calls a parent: a clone may have placed several checkpoints in one."""
    return f"{external.path}@{external.final_checkpoint_id}"


async def _release(database: Database, external: ExternalDb, this: Pass) -> bool:
    """Remove the checkpoint that we placed in the parent; false if that has to be tried again later."""
    assert external.final_checkpoint_id is not None
    parents = ManifestStore(database.store, external.path, database.env, database.metrics, database.protocol)
    try:
        parent = await parents.try_read_latest()
        if parent is None:
            # Without a manifest and without a marker nothing is left that could be released.
            return not await is_destroyed(database.store, external.path)
        await release_checkpoints(Stored(parents, parent, database.env), [external.final_checkpoint_id])
    except ProtocolPanic:
        raise
    except ShaleError as error:
        this.instruments.error(this.task, error)
        log.error(Event.CLONE_DETACH_FAILED, path=external.path, error=error)
        return False
    return True


def _without(manifest: Manifest, final_checkpoint_ids: Collection[UUID | None]) -> Manifest | None:
    kept = tuple(
        external for external in manifest.external_dbs if external.final_checkpoint_id not in final_checkpoint_ids
    )
    return None if len(kept) == len(manifest.external_dbs) else replace(manifest, external_dbs=kept)
