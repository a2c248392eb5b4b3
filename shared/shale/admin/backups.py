"""``admin.backups``: back up and restore this database (docs/how-to/backup-and-restore.md)."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

from shale.admin.context import AdminContext
from shale.admin.verify.database import VerifyOptions, VerifyTarget, verify_database
from shale.backup import prune as pruning
from shale.backup.backup_store import BackupStore, UnfinishedBackup
from shale.backup.begin import BackupSource, CreateOptions
from shale.backup.copying import CONCURRENCY, OnProgress
from shale.backup.create import create_backup
from shale.backup.document import Backup
from shale.backup.planner import PrunePlan, PruneRules
from shale.backup.restore import RestoreOptions, RestoreResult, RestoreTarget, read_manifest, restore_backup
from shale.backup.restored_view import VIEW_ROOT, RestoredView
from shale.backup.verify import BackupFinding, BackupReport, verify_backup
from shale.core.settings_values import Duration, parse_duration_ms
from shale.env import Env
from shale.errors import InvalidRequestError, NotFoundError
from shale.format.blocks.transform import BlockTransformer
from shale.protocol.checkpoints import require_checkpoint_reference
from shale.sst.verify.sst import VerifyDepth
from shale.store.connect import connect
from shale.store.location import (
    BUCKET_SCHEMES,
    Location,
    UrlOrPath,
    normalize_path,
    parse_location,
    parse_store_url,
    url_of,
)
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import CasMode, Ulid


class BackupAdmin:
    """The backups at one place; several databases can share it, and with it nothing but the place.

    Made by ``Admin.backups``.  Copies are shared by all backups of a database.
    """

    def __init__(
        self,
        place: AdminContext,
        where: UrlOrPath | None,
        *,
        store: UrlOrPath | ObjectStore | None,
        path: UrlOrPath | None,
        options: StoreOptions,
        transformer: BlockTransformer | None,
    ) -> None:
        self._place = place
        self._transformer = transformer
        self._options = options
        self._store, self._root = _place_of(where, store, path)

    async def create(
        self,
        *,
        checkpoint: UUID | str | None = None,
        keep_wal: bool = False,
        concurrency: int = CONCURRENCY,
        resume: bool = True,
        on_progress: OnProgress | None = None,
    ) -> Backup:
        """Make a backup of the durable rows, or continue an interrupted one.  Objects that are there are not copied.

        Args:
            checkpoint: id or name of a checkpoint; by default one is made of the newest state, and deleted at the end.
            keep_wal: also copy the WAL files since the last backup, if the database still has them, so that every
                sequence number in between can be restored.  Their rows are in SSTs, too, so more bytes are copied.
            concurrency: SSTs that are copied concurrently; each takes some 40 MB of memory.
            resume: continue an interrupted backup of this database, if there is one.
            on_progress: called with the progress.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidDbState: it is half built or destroyed, a prune of the backups runs, or one has removed this backup.
            InvalidRequestError: its WAL is in another store or backend than was given.
            CheckpointMissing, AmbiguousCheckpoint: there is not exactly one such checkpoint.
            CorruptionError: the database lacks an object, or a document of the backup store is damaged.
        """
        place = self._place
        options = CreateOptions(
            checkpoint=None if checkpoint is None else require_checkpoint_reference(checkpoint),
            concurrency=_at_least_one(concurrency),
            resume=resume,
            keep_wal=keep_wal,
        )
        async with self._open() as backups:
            require_apart(place, backups)
            source = BackupSource(
                store=place.stores.main,
                root=place.root,
                url=Location(place.stores.main.url, place.root).url,
                env=place.env,
                manifests=place.manifests,
                wal=place.stores.wal,
            )
            return await create_backup(source, backups, options, on_progress)

    async def list(self) -> tuple[Backup, ...]:
        """Return all complete backups at the place, oldest first.

        Raises:
            CorruptionError: a document is damaged.
        """
        async with self._open() as backups:
            return await backups.backups()

    async def unfinished(self) -> tuple[UnfinishedBackup, ...]:
        """Return the backups that are being made or were interrupted, oldest first."""
        async with self._open() as backups:
            return await backups.unfinished()

    async def restore(
        self,
        backup_id: Ulid | str | None = None,
        *,
        to_seq: int | None = None,
        in_place: bool = False,
        concurrency: int = CONCURRENCY,
        on_progress: OnProgress | None = None,
    ) -> RestoreResult:
        """Restore a backup at the path of this ``Admin``; a repeated call continues after an interruption.

        Args:
            backup_id: the backup; by default the newest one of this path, or of the only path with backups.  With
                ``to_seq``: the newest one whose SSTs have no later rows.
            to_seq: restore only rows up to this sequence number; WAL files of later backups are used.
            in_place: replace the database at the path.  Its state before is kept by a checkpoint for a week.  Its
                processes must be stopped; an older writer is fenced.
            concurrency: SSTs that are copied concurrently.
            on_progress: called with the progress.

        Raises:
            NotFoundError: there is no such backup.
            InvalidDbState: there is a database at the path, its writer is alive, or it is destroyed.
            InvalidRequestError: the backups do not have ``to_seq``, or need another WAL store or backend.
            CorruptionError: a copy is damaged or missing; the database stays half built, and no process opens it.
        """
        place = self._place
        target = RestoreTarget(
            store=place.stores.main,
            root=place.root,
            env=place.env,
            manifests=place.manifests,
            compactions=place.compactions,
            wal=place.stores.wal,
            transformer=self._transformer,
        )
        options = RestoreOptions(to_seq=to_seq, in_place=in_place, concurrency=_at_least_one(concurrency))
        async with self._open() as backups:
            chosen = await _chosen(backups, backup_id, place.root, to_seq)
            later = [] if to_seq is None else await _later(backups, chosen)
            return await restore_backup(backups, chosen, later, target, options, on_progress=on_progress)

    async def verify(
        self,
        backup_id: Ulid | str | None = None,
        *,
        quick: bool = False,
        deep: bool = False,
        concurrency: int = CONCURRENCY,
        on_progress: OnProgress | None = None,
    ) -> BackupReport:
        """Check the copies of a backup against its document.  Nothing is written.

        Args:
            backup_id: the backup; by default the newest one, see ``restore``.
            quick: compare sizes only, from one listing.
            deep: after the checksums, open the backup as a database and decode all rows, which needs its keys.
            concurrency: objects that are read concurrently.
            on_progress: called with the progress.

        Raises:
            NotFoundError: there is no such backup.
            CorruptionError: the document is damaged.
        """
        if quick and deep:
            raise InvalidRequestError("deep and quick: give only one of them")
        env = self._place.env
        async with self._open() as backups:
            chosen = await _chosen(backups, backup_id, self._place.root, None)
            report = await verify_backup(
                backups, chosen, env, quick=quick, concurrency=_at_least_one(concurrency), on_progress=on_progress
            )
            if not deep or not report.is_sound:
                return report
            view = RestoredView.of(backups, chosen, await read_manifest(backups, chosen))
            target = VerifyTarget(store=view, wal_store=None, root=VIEW_ROOT, env=env, transformer=self._transformer)
            found = await verify_database(target, VerifyOptions(depth=VerifyDepth.DEEP), None)
        findings = tuple(BackupFinding(each.object, each.what) for each in found.findings)
        return replace(report, depth="deep", findings=findings, rows=found.rows)

    async def plan_prune(
        self,
        *,
        keep: int | None = None,
        older_than: Duration | None = None,
        abandoned_after: Duration | None = None,
    ) -> PrunePlan:
        """Return what ``prune`` would delete.  Nothing is written."""
        async with self._open() as backups:
            return await pruning.plan(backups, _rules(keep, older_than, abandoned_after), self._place.env)

    async def prune(
        self,
        *,
        keep: int | None = None,
        older_than: Duration | None = None,
        abandoned_after: Duration | None = None,
        break_lock: bool = False,
        on_deleted: Callable[[int, int], None] | None = None,
    ) -> PrunePlan:
        """Remove backups, and the copies that no remaining backup needs; those of backups in progress stay.

        Args:
            keep: of each database, keep this many of the newest backups.
            older_than: only remove backups that began longer ago.
            abandoned_after: also remove backups in progress that began longer ago; one that still runs fails.
            break_lock: continue although another prune seems to run, because it was killed.
            on_deleted: called with the objects deleted so far, and their total.

        Returns:
            What was deleted: less than planned, if a backup was completed meanwhile.

        Raises:
            InvalidRequestError: neither ``keep`` nor ``older_than`` was given.
            InvalidDbState: another prune runs.
            CorruptionError: a document is damaged; nothing is deleted.
            UnavailableError: objects could not be deleted; the next prune tries again.
        """
        rules = _rules(keep, older_than, abandoned_after)
        async with self._open() as backups:
            return await pruning.prune(backups, rules, self._place.env, break_lock=break_lock, on_deleted=on_deleted)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[BackupStore]:
        store = connect(self._store, self._place.env, self._place.metrics, self._options, component="admin")
        try:
            yield BackupStore(store, self._root, self._place.env)
        finally:
            if isinstance(self._store, str):
                await store.aclose()


def connect_backups(
    where: UrlOrPath, options: StoreOptions, env: Env, metrics: Metrics, *, component: str
) -> BackupStore:
    """Return the backups at a URL; the caller closes the store.

    Args:
        where: URL of the place.
        options: of its store, which creates files in the native way.
        env, metrics: of the process.
        component: the metric label.

    Raises:
        InvalidRequestError: the URL is malformed.
    """
    store, root = _place_of(where, None, None)
    native = replace(options, cas=CasMode.NATIVE, transactional_url=None)
    return BackupStore(connect(store, env, metrics, native, component=component), root, env)


def _place_of(
    where: UrlOrPath | None, store: UrlOrPath | ObjectStore | None, path: UrlOrPath | None
) -> tuple[str | ObjectStore, str]:
    """Return the store of backups and the path in it, which may be empty: a whole bucket or directory."""
    if store is not None:
        root = normalize_path(path or where or "")
        return (parse_store_url(store), root) if isinstance(store, str | os.PathLike) else (store, root)
    if where is None:
        raise InvalidRequestError("the place of the backups is missing: give a URL such as s3://backups/orders")
    url = url_of(where, "the place of the backups")
    scheme, _, rest = url.partition("://")
    if scheme == "file" or (scheme in BUCKET_SCHEMES and not rest.partition("/")[2].strip("/")):
        return parse_store_url(url), ""
    location = parse_location(url)
    return location.store_url, location.path


def require_apart(place: AdminContext, backups: BackupStore) -> None:
    """Check that the backups are not below the database, where its destruction would delete them.

    Raises:
        InvalidRequestError: they are.
    """
    database = Location(place.stores.main.url, place.root).url
    if f"{Location(backups.store.url, backups.root).url}/".startswith(f"{database}/"):
        raise InvalidRequestError(
            f"the backups are below the database, in {place.root}: choose another path, or better another store"
        )


def _at_least_one(concurrency: int) -> int:
    if concurrency < 1:
        raise InvalidRequestError(f"concurrency is {concurrency}: it must be at least 1")
    return concurrency


def _rules(keep: int | None, older_than: Duration | None, abandoned_after: Duration | None) -> PruneRules:
    return PruneRules(
        keep=keep,
        older_than_ms=None if older_than is None else parse_duration_ms(older_than, name="older_than"),
        abandoned_after_ms=None
        if abandoned_after is None
        else parse_duration_ms(abandoned_after, name="abandoned_after"),
    )


async def _chosen(backups: BackupStore, wanted: Ulid | str | None, path: str, to_seq: int | None) -> Backup:
    """Return the backup that a caller means; see ``BackupAdmin.restore``.  With an id only its document is read.

    Raises:
        NotFoundError: there is none.
        InvalidRequestError: the id is malformed, or several databases have backups and none of them has this path.
        CorruptionError: a document is damaged.
    """
    if wanted is not None:
        backup_id = wanted if isinstance(wanted, Ulid) else Ulid.parse(wanted)
        if backup_id is None:
            raise InvalidRequestError(f"{wanted!r} is not the id of a backup")
        return await backups.read(backup_id)
    known = await backups.backups()
    paths = {each.path for each in known}
    if path not in paths and len(paths) > 1:
        raise InvalidRequestError(f"there are backups of {', '.join(sorted(paths))}: give the id of one")
    candidates = [each for each in known if each.path == path or path not in paths]
    fitting = [each for each in candidates if to_seq is None or each.last_l0_seq <= to_seq]
    if not fitting:
        why = "" if not candidates else f" whose SSTs end at or before sequence number {to_seq}"
        raise NotFoundError(f"there is no complete backup{why}")
    return max(fitting, key=lambda each: each.id)


async def _later(backups: BackupStore, chosen: Backup) -> list[Backup]:
    return [each for each in await backups.backups() if each.path == chosen.path and each.id > chosen.id]
