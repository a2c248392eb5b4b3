"""Old WAL files, and old fences, that no replay can need any more."""

from collections.abc import AsyncIterator, Sequence

from shale.garbage.database import Database
from shale.garbage.doomed import Doomed
from shale.garbage.options import Task
from shale.garbage.passes import Pass
from shale.garbage.planner import plan_wal_gc
from shale.protocol.followers import followed_after
from shale.protocol.wal_place import require_wal_place
from shale.types import Manifest

WHY = {Task.WAL: "replayed by nobody", Task.WAL_FENCE: "a fence that the log has passed"}


async def sweep_wal(database: Database, this: Pass) -> None:
    """Delete WAL files with rows, or fences: whichever the pass is about.

    Raises:
        ManifestMissing: the manifest of a checkpoint is gone; nothing is deleted on incomplete knowledge.
        InvalidRequestError: the WAL is in a store of its own that was not named, so none of it would be found.
    """
    latest = await database.manifests.read_latest()
    require_wal_place(latest.value, database.name, is_named=database.has_own_wal_store)
    checkpointed = {id_: manifest async for id_, manifest in database.checkpointed(latest, trees=False)}
    followed = followed_after(latest.value, checkpointed)
    chunks = _doomed(database, this, latest.value, tuple(checkpointed.values()), followed)
    await this.carry_out(chunks, database.delete_wal, why=WHY[this.task])


async def _doomed(
    database: Database, this: Pass, latest: Manifest, checkpointed: Sequence[Manifest], followed: int | None
) -> AsyncIterator[Sequence[Doomed]]:
    async for page in database.wal.pages():
        this.progress.listed += len(page)
        planned = plan_wal_gc(
            page,
            latest=latest,
            checkpointed=checkpointed,
            followed_after=followed,
            fences=this.task is Task.WAL_FENCE,
            now_ms=this.now_ms,
            min_age_ms=this.options.min_age_ms,
        )
        yield [Doomed(file.id, database.wal.key(file.id), file.size, file.last_modified_ms) for file in planned]
