"""SSTs that no referenced manifest shows: leftovers of compactions, and of processes that died."""

from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial

from shale.format.names import sst_key
from shale.garbage.database import Database
from shale.garbage.doomed import Doomed
from shale.garbage.passes import Pass
from shale.garbage.planner import Cutoff, cutoff_for_ssts, plan_compacted_gc
from shale.garbage.ulid_set import UlidSet
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Manifest

WHY = "unreferenced"
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
    active = UlidSet()
    await database.env.cpu.run(partial(_add, active, latest.value))
    async for _, manifest in database.checkpointed(latest):
        await database.env.cpu.run(partial(_add, active, manifest))
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
    await this.carry_out(_doomed(database, this, active, cutoff), database.delete_ssts, why=WHY)


def _add(active: UlidSet, manifest: Manifest) -> None:
    """Of a large manifest this takes a second or more, during which nothing else of the process would run."""
    active.update(view.sst.id for view in manifest.views())


async def _doomed(
    database: Database, this: Pass, active: Collection[int], cutoff: Cutoff
) -> AsyncIterator[Sequence[Doomed]]:
    async for page in database.sst_pages():
        this.progress.listed += len(page)
        planned = plan_compacted_gc(page, active=active, cutoff=cutoff)
        yield [Doomed(file.id, sst_key(database.root, file.id), file.size, file.id.ms) for file in planned]
