"""Old WAL files, and old fences, that no replay can need any more."""

from shale.protocol.followers import followed_after
from shale_gc.database import Database
from shale_gc.options import Task
from shale_gc.passes import Pass
from shale_gc.planner import plan_wal_gc


async def sweep_wal(database: Database, this: Pass) -> None:
    """Delete WAL files with rows, or fences: whichever the pass is about.

    Raises:
        ManifestMissing: the manifest of a checkpoint is gone; nothing is deleted on incomplete knowledge.
    """
    latest = await database.manifests.read_latest()
    checkpointed = await database.checkpointed(latest)
    doomed = plan_wal_gc(
        await database.wal.list(),
        latest=latest.value,
        checkpointed=checkpointed.values(),
        followed_after=followed_after(latest.value, checkpointed),
        fences=this.task is Task.WAL_FENCE,
        now_ms=this.now_ms,
        min_age_ms=this.options.min_age_ms,
    )
    await this.carry_out(doomed, database.wal.delete)
