"""Old manifests and old compactions files: the boundary first, the files after."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from shale.errors import LatestRecordMissing, ManifestMissing
from shale.garbage.database import Database
from shale.garbage.doomed import Doomed
from shale.garbage.passes import Pass
from shale.garbage.planner import VersionPlan, plan_compactions_gc, plan_manifest_gc
from shale.protocol.version_list import VersionList
from shale.protocol.versioned import VersionMeta
from shale.protocol.versioned_store import VersionedStore

WHY = "unreferenced"
_LISTINGS_MAX = 3
_CHUNK = 1000


async def sweep_manifests(database: Database, this: Pass) -> None:
    """Delete manifests that nobody can need.

    Raises:
        LatestRecordMissing: there is no manifest, so there is no database.
        ManifestMissing: the newest one keeps vanishing before it can be read.
    """
    versions, pinned = await _list_with_pins(database)
    plan = plan_manifest_gc(versions, pinned=pinned, now_ms=this.now_ms, min_age_ms=this.options.min_age_ms)
    await _sweep(database.manifests, versions, plan, this)


async def sweep_compactions(database: Database, this: Pass) -> None:
    """Delete all old compactions files but the newest.

    Raises:
        CorruptionError: the newest one is damaged; nothing is deleted.
    """
    versions = await database.compactions.list_versions()
    if len(versions) > 1:
        # If the newest one cannot be read, the ones before it are all that is left to repair it from.
        await database.compactions.read(versions[-1].id)
    plan = plan_compactions_gc(versions, now_ms=this.now_ms, min_age_ms=this.options.min_age_ms)
    await _sweep(database.compactions, versions, plan, this)


async def _sweep(store: VersionedStore[Any], versions: VersionList, plan: VersionPlan, this: Pass) -> None:
    this.progress.listed += len(versions)
    this.instruments.versions(this.task, len(versions))
    await this.carry_out(
        _chunks(store, plan.doomed),
        lambda doomed: store.delete_many([each.id for each in doomed]),
        why=WHY,
        boundary=plan.boundary,
        advance=store.advance_boundary,
    )
    this.instruments.versions(this.task, len(versions) - this.progress.deleted)


async def _chunks(store: VersionedStore[Any], doomed: Sequence[VersionMeta]) -> AsyncIterator[Sequence[Doomed]]:
    for first in range(0, len(doomed), _CHUNK):
        part = doomed[first : first + _CHUNK]
        yield [Doomed(each.id, store.namespace.key(each.id), each.size, each.last_modified_ms) for each in part]


async def _list_with_pins(database: Database) -> tuple[VersionList, frozenset[int]]:
    """A listing, and what the newest manifest of that very listing pins."""
    newest_id = 0
    for _ in range(_LISTINGS_MAX):
        versions = await database.manifests.list_versions()
        if not versions:
            raise LatestRecordMissing(f"no manifest below {database.root or '/'}")
        newest_id = versions[-1].id
        latest = await database.manifests.read(newest_id)
        if latest is not None:
            return versions, frozenset(checkpoint.manifest_id for checkpoint in latest.checkpoints)
        # Another collector was faster, so there are newer ones.
    raise ManifestMissing(newest_id)
