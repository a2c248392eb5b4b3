"""SSTs that no referenced manifest shows: leftovers of compactions, and of processes that died."""

from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale_gc.database import Database
from shale_gc.passes import Pass
from shale_gc.planner import cutoff_for_ssts, plan_compacted_gc

log = get_logger("gc")


async def sweep_compacted(database: Database, this: Pass) -> None:
    """Delete SSTs that are unused and too old to belong to work in progress.

    The compactions are read before the manifest: a job that commits in between shows its outputs in the manifest,
    while the other order could miss them in both.

    Raises:
        ManifestMissing: the manifest of a checkpoint is gone; nothing is deleted on incomplete knowledge.
    """
    compactions = await database.compactions.try_read_latest()
    latest = await database.manifests.read_latest()
    active = set(latest.value.ssts())
    for manifest in (await database.checkpointed(latest)).values():
        active.update(manifest.ssts())
    cutoff = cutoff_for_ssts(
        latest.value,
        compactions.value if compactions is not None else None,
        now_ms=this.now_ms,
        min_age_ms=this.options.min_age_ms,
    )
    this.instruments.cutoff(cutoff)
    log.debug(
        Event.GC_CUTOFF_COMPUTED,
        min_age_ms=cutoff.min_age_ms,
        compactions_ms=cutoff.compactions_ms,
        newest_l0_ms=cutoff.newest_l0_ms,
        final_ms=cutoff.final_ms,
    )
    doomed = plan_compacted_gc(await database.list_ssts(), active=active, cutoff=cutoff)
    await this.carry_out(doomed, database.delete_sst)
