"""Begins a backup, or continues an interrupted one: the checkpoint, and the plan that keeps copies from a prune.

A prune deletes documents first, then copies.  So a copy that an earlier backup has made is used only if that backup is
still there once the plan is written and no prune runs: then no prune has tried to delete the copy, and none will while
the plan is there.  A prune can remove the plan itself, because the backup began longer ago than ``abandoned_after_ms``.
Then the backup fails when it is resumed, or at its end (``shale.backup.complete``).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from shale.backup.backup_store import BackupStore, UnfinishedBackup
from shale.backup.complete import require_in_progress
from shale.backup.copying import CONCURRENCY
from shale.backup.document import Backup, BackupObject, ObjectKind
from shale.backup.planner import SourceSst, folders, names_to_keep, owners, source_ssts
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import CheckpointMissing, ManifestMissing
from shale.protocol.checkpoints import create_checkpoint, release_checkpoints, renew_checkpoint, resolve_checkpoint
from shale.protocol.manifest_store import ManifestStore, StoredManifest
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Checkpoint, Manifest, Ulid

CHECKPOINT_LIFETIME_MS = 24 * 3600 * 1000
"""Lifetime of the checkpoint of a backup, within which an interrupted one can be continued; renewed at each start."""
CHECKPOINT_NAME = "backup"
log = get_logger("backup")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSource:
    """The database to copy.  ``wal``: the store of its WAL, if that is separate.  ``url``: what documents name it."""

    store: ObjectStore
    root: str
    url: str
    env: Env
    manifests: ManifestStore
    wal: ObjectStore | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateOptions:
    """Options of a backup.

    Args:
        checkpoint: id or name of the state to copy; ``None``: the newest one.
        concurrency: SSTs that are copied concurrently.
        resume: continue an interrupted backup of this database, if there is one.
        keep_wal: also copy the WAL files since the last backup, whose rows are in SSTs, too.
    """

    keep_wal: bool = False
    checkpoint: UUID | str | None = None
    concurrency: int = CONCURRENCY
    resume: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunBackup:
    """A backup whose plan is written.

    Args:
        plan: with what it has copied.
        manifest: the version to copy.
        ssts: its SSTs.
        earlier: the complete backups whose copies can be used.
    """

    plan: UnfinishedBackup
    manifest: Manifest
    ssts: tuple[SourceSst, ...]
    earlier: tuple[Backup, ...]

    @property
    def reusable(self) -> list[BackupObject]:
        """Copies of complete backups that no prune deletes during this one."""
        kept = frozenset(self.plan.ssts)
        found = (each for backup in self.earlier for each in backup.objects)
        # A prune keeps all copies of the other kinds while a backup of their database is in progress.
        return [each for each in found if each.kind is not ObjectKind.SST or each.key in kept]


async def begin_backup(
    source: BackupSource, target: BackupStore, options: CreateOptions, stored: StoredManifest
) -> BegunBackup:
    """Write the plan of a new backup, or take that of an interrupted one.

    Raises:
        InvalidDbState: a prune runs, or has removed the interrupted backup.
        SstMissing, ManifestMissing: the database lacks an object.
    """
    earlier = await target.backups()
    old, expired = await _unfinished(source, target, options, stored, {each.id for each in earlier})
    if old is not None and old.owns_checkpoint:
        try:
            await renew_checkpoint(stored, source.env, old.checkpoint_id, lifetime_ms=CHECKPOINT_LIFETIME_MS)
        except CheckpointMissing:
            # Another process has completed it meanwhile, or it has expired: it cannot be continued a second time.
            return await begin_backup(source, target, options, stored)
    plan = old if old is not None else await _new_plan(source, options, stored)
    manifest = await _read_manifest(source.manifests, plan.manifest_id)
    ssts = await _list_ssts(source, manifest, plan.plan_id)
    known = [each for backup in earlier for each in backup.objects]
    known += [each for backup in expired for each in backup.copied.values()]
    plan = replace(plan, ssts=tuple(sorted({*plan.ssts, *names_to_keep(ssts, known)})))
    if old is None:
        await target.start(plan)
    else:
        await target.resume(plan)
        await require_in_progress(target, plan.plan_id)
        log.info(Event.BACKUP_RESUMED, backup_id=str(plan.plan_id), objects=len(plan.copied))
    plan = await _adopt(target, plan, expired)
    left = frozenset(await target.ids())
    return BegunBackup(plan=plan, manifest=manifest, ssts=ssts, earlier=tuple(e for e in earlier if e.id in left))


async def clean_up(target: BackupStore, stored: StoredManifest, plan: UnfinishedBackup) -> None:
    """Remove what a complete backup does not need any more."""
    if plan.owns_checkpoint:
        await release_checkpoints(stored, [plan.checkpoint_id])
    await target.finish(plan.plan_id)


async def _unfinished(
    source: BackupSource,
    target: BackupStore,
    options: CreateOptions,
    stored: StoredManifest,
    complete: set[Ulid],
) -> tuple[UnfinishedBackup | None, list[UnfinishedBackup]]:
    """Return the backup to continue, and those of this database whose state is gone."""
    now_ms = source.env.clock.now_ms()
    resumed: UnfinishedBackup | None = None
    expired: list[UnfinishedBackup] = []
    for found in reversed(await target.unfinished()):
        if (found.path, found.source) != (source.root, source.url):
            continue
        checkpoint = stored.value.checkpoint(found.checkpoint_id)
        if found.plan_id in complete:
            await clean_up(target, stored, found)
        elif checkpoint is None or checkpoint.is_expired(now_ms):
            expired.append(found)
        elif resumed is None and options.resume and _is_wanted(stored.value, found, options, source.env):
            resumed = found
    return resumed, expired


async def _new_plan(source: BackupSource, options: CreateOptions, stored: StoredManifest) -> UnfinishedBackup:
    checkpoint = await _checkpoint(stored, options, source.env)
    return UnfinishedBackup(
        plan_id=source.env.ids.ulid(),
        started_ms=source.env.clock.now_ms(),
        source=source.url,
        path=source.root,
        checkpoint_id=checkpoint.id,
        owns_checkpoint=options.checkpoint is None,
        manifest_id=checkpoint.manifest_id,
        ssts=(),
        copied={},
    )


async def _adopt(target: BackupStore, plan: UnfinishedBackup, expired: Sequence[UnfinishedBackup]) -> UnfinishedBackup:
    """Take over the copies of backups whose state is gone, and remove their plans."""
    adopted: dict[str, BackupObject] = {}
    for each in expired:
        # Without a plan, a prune may have deleted what it has copied.
        if await target.has_plan(each.plan_id):
            adopted |= {key: found for key, found in each.copied.items() if _is_kept(found, plan)}
    new = [found for key, found in adopted.items() if key not in plan.copied]
    if new:
        await target.record(plan.plan_id, new)
    for each in expired:
        await target.finish(each.plan_id)
    return replace(plan, copied={**adopted, **plan.copied})


def _is_kept(found: BackupObject, plan: UnfinishedBackup) -> bool:
    return found.kind is ObjectKind.SST and found.key in plan.ssts


async def _list_ssts(source: BackupSource, manifest: Manifest, plan_id: Ulid) -> tuple[SourceSst, ...]:
    places = owners(manifest, source.root)
    return source_ssts(places, await _sizes(source, folders(places)), plan_id)


def _is_wanted(manifest: Manifest, found: UnfinishedBackup, options: CreateOptions, env: Env) -> bool:
    """Return whether an interrupted backup has the state that the caller wants."""
    if options.checkpoint is None:
        return found.owns_checkpoint
    return resolve_checkpoint(manifest, options.checkpoint, env.clock.now_ms()).id == found.checkpoint_id


async def _checkpoint(stored: StoredManifest, options: CreateOptions, env: Env) -> Checkpoint:
    if options.checkpoint is not None:
        return resolve_checkpoint(stored.value, options.checkpoint, env.clock.now_ms())
    return await create_checkpoint(stored, env, lifetime_ms=CHECKPOINT_LIFETIME_MS, name=CHECKPOINT_NAME)


async def _read_manifest(manifests: ManifestStore, manifest_id: int) -> Manifest:
    manifest = await manifests.read(manifest_id)
    if manifest is None:
        raise ManifestMissing(manifest_id)
    return manifest


async def _sizes(source: BackupSource, prefixes: Iterable[str]) -> dict[str, int]:
    return {meta.key: meta.size for prefix in prefixes for meta in await source.store.list(prefix)}
