"""``Admin``: administration of a database from outside of its processes, a facade of this package's modules."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import ClassVar, Self, Unpack
from uuid import UUID

from shale.admin.backups import BackupAdmin
from shale.admin.checkpoints import CheckpointAdmin
from shale.admin.clones import CloneAdmin
from shale.admin.compactions import POLL_INTERVAL_S, CompactionAdmin, ulid_of
from shale.admin.context import AdminContext
from shale.admin.destroy import DestroyMode, DestroyResult, destroy_database
from shale.admin.encryption import EncryptionAdmin
from shale.admin.gc import GcAdmin
from shale.admin.states import StateAdmin
from shale.admin.verify.database import OnProgress, VerifyOptions, VerifyTarget, verify_database
from shale.admin.verify.report import VerifyReport
from shale.compaction.requests import CompactionRequest
from shale.compaction.status import CompactionInfo
from shale.core.async_use import AsyncContext
from shale.core.state_repr import ShowsState
from shale.core.suggestions import require_known
from shale.core.ttl import Timestamp
from shale.engine.open_options import CONNECT_NAMES, OPEN_PARAMETERS, ConnectOptions, OpenArguments
from shale.engine.seq_times import seq_at, time_of
from shale.engine.wal.reader import WalReader
from shale.env import Env
from shale.errors import ClosedError, InvalidRequestError, LatestRecordMissing
from shale.format.sequence_tracker import SequenceTracker
from shale.gc.hard_destroy import OnDeleted
from shale.protocol.checkpoints import require_checkpoint_reference
from shale.protocol.wal_store import WalStore
from shale.sst.verify.sst import VerifyDepth
from shale.store.environment import with_environment
from shale.store.location import Location, UrlOrPath
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import CasMode, Ulid


class Admin(ShowsState, AsyncContext):
    """Use with ``async with``.  It can run beside any other processes of the database; only ``destroy`` fences them.

    Args:
        where: URL of the database; with ``store``, its path in that store.
        store: URL of a store, or a store object, which the caller closes.
        path: the same as ``where``, for use with ``store``.
        options: ``wal_store``, ``env``, ``metrics``, ``store_options`` and ``block_transformer``; see
            ``ConnectOptions``.

    Raises:
        UnknownOption: there is no option of that name.
        InvalidRequestError: the URL or path is malformed.
    """

    _CALL: ClassVar = ("shale.Admin(…)", "async with")

    def __init__(
        self,
        where: UrlOrPath | None = None,
        *,
        store: UrlOrPath | ObjectStore | None = None,
        path: UrlOrPath | None = None,
        **options: Unpack[ConnectOptions],
    ) -> None:
        require_known(options, CONNECT_NAMES, OPEN_PARAMETERS)
        self._where, env, metrics = OpenArguments.of(where, store, path, options)
        self._env = env if env is not None else Env.system()
        self._metrics = metrics if metrics is not None else Metrics()
        self._place: AdminContext | None = None
        self._compactions: CompactionAdmin | None = None

    async def __aenter__(self) -> Self:
        stores = self._where.connect(self._env, self._metrics, component="admin", is_bounded=True)
        self._place = AdminContext.of(stores, self._where.root, self._env, self._metrics)
        self._compactions = CompactionAdmin(stores.main, self._where.root, self._env, self._metrics)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        place, self._place, self._compactions = self._place, None, None
        if place is not None:
            await place.stores.aclose()

    def _shown_state(self) -> Mapping[str, object]:
        store = self._where.store if isinstance(self._where.store, str) else self._where.store.url
        return {
            "database": Location(store, self._where.root).url,
            "state": "not entered" if self._place is None else "open",
        }

    @property
    def checkpoints(self) -> CheckpointAdmin:
        """Checkpoints: create, refresh, delete, list."""
        return CheckpointAdmin(self._open)

    @property
    def states(self) -> StateAdmin:
        """Stored manifests and compactions files."""
        return StateAdmin(self._open)

    @property
    def clones(self) -> CloneAdmin:
        """Create this database as a clone of others."""
        return CloneAdmin(self._open, self._where.block_transformer)

    def backups(
        self,
        where: UrlOrPath | None = None,
        *,
        store: UrlOrPath | ObjectStore | None = None,
        path: UrlOrPath | None = None,
        store_options: StoreOptions | None = None,
    ) -> BackupAdmin:
        """Return the backups at a place: create, list, restore, verify and prune them.

        Args:
            where: URL of the place; with ``store``, the path in that store.
            store: URL of a store, or a store object.
            path: the same as ``where``, for use with ``store``.
            store_options: of the store of the backups; by default those of the database.

        Raises:
            InvalidRequestError: the URL or the path is malformed.
        """
        options = with_environment(self._where.store_options, os.environ) if store_options is None else store_options
        options = replace(options, cas=CasMode.NATIVE, transactional_url=None)
        transformer = self._where.block_transformer
        return BackupAdmin(self._open, where, store=store, path=path, options=options, transformer=transformer)

    @property
    def wal(self) -> WalReader:
        """Rows straight from WAL files."""
        place = self._open
        files = WalStore(place.stores.wal or place.stores.main, place.root, transformer=self._where.block_transformer)
        return WalReader(files, place.manifests, place.env)

    async def verify(
        self,
        *,
        deep: bool = False,
        quick: bool = False,
        checkpoint: UUID | str | None = None,
        concurrency: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> VerifyReport:
        """Check that all objects exist, can be read and satisfy the invariants (docs/how-to/verify.md).  Nothing is
        written.

        Args:
            deep: also decode all rows and compare them with indexes, filters and stats.
            quick: of SSTs, read only footers, indexes, filters and stats, and not the blocks with the rows.
            checkpoint: id or name of a checkpoint; only check the objects that it references.
            concurrency: objects that are read concurrently.
            on_progress: called with the progress.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidRequestError: its WAL is in a store of its own, and that store was not given.
            CheckpointMissing: there is no such checkpoint.
            AmbiguousCheckpoint: several have that name.
        """
        if deep and quick:
            raise InvalidRequestError("deep and quick: give only one of them")
        depth = VerifyDepth.DEEP if deep else VerifyDepth.QUICK if quick else VerifyDepth.CHECKSUMS
        place = self._open
        checked = VerifyTarget(
            store=place.stores.main,
            wal_store=place.stores.wal,
            root=place.root,
            env=place.env,
            transformer=self._where.block_transformer,
        )
        chosen = None if checkpoint is None else require_checkpoint_reference(checkpoint)
        options = VerifyOptions(depth=depth, checkpoint=chosen, concurrency=concurrency)
        return await verify_database(checked, options, on_progress)

    @property
    def encryption(self) -> EncryptionAdmin:
        """Keys: which are needed, and their replacement."""
        return EncryptionAdmin(self._open, self._compacting, self._where.block_transformer)

    @property
    def gc(self) -> GcAdmin:
        """GC: plan and run."""
        return GcAdmin(self._open)

    async def destroy(
        self,
        mode: DestroyMode | str = DestroyMode.HARD,
        *,
        confirm: bool = False,
        force: bool = False,
        on_deleted: OnDeleted | None = None,
    ) -> DestroyResult:
        """Destroy the database permanently; a rerun after an interruption continues.

        Stop its writers, compactors and GC processes first, and do not reuse its path while one of them may still
        run.  A soft destroy fences writer and compactor and marks the database: no process can open it any more, and
        GC deletes it after the grace period, once it has no checkpoint left.

        Args:
            mode: ``hard`` or ``soft``.
            confirm: destroy the database; by default nothing is written, and the result has the plan.
            force: hard only: ignore live checkpoints, and also delete unknown objects below the path.
            on_deleted: called after each deletion.

        Raises:
            InvalidDbState: there are other objects but no database, or its state forbids a soft destroy.
            InvalidDeletion: there are live checkpoints or unknown objects.
            InvalidRequestError: the WAL is in a store of its own, and that store was not given.
            LatestRecordMissing: a soft destroy found no database.
        """
        return await destroy_database(self._open, mode, confirm=confirm, force=force, on_deleted=on_deleted)

    async def submit_compaction(
        self, request: CompactionRequest, *, dry_run: bool = False
    ) -> tuple[CompactionInfo, ...]:
        """Submit compactions to the coordinator: one for each tree of the request, possibly none.

        Args:
            request: a ``Full``, ``FullSegment``, ``Sources`` or ``Spec`` of ``shale.compaction.requests``.
            dry_run: validate and return what would be submitted; write nothing.

        Raises:
            InvalidCompaction: a rule V1–V13 is broken; the message says what would be valid.  Nothing is written.
            LatestRecordMissing: there is no database.
            InvalidDbState: it is half built or destroyed, or no coordinator was ever started on it.
        """
        return await self._compacting.submit(request, dry_run=dry_run)

    async def compaction_status(self, compaction_id: str | Ulid, *, file_id: int | None = None) -> CompactionInfo:
        """Return the status of one compaction, also of an ended one while retained versions have it.

        Args:
            file_id: use only this version of the compactions file.

        Raises:
            NotFoundError: no retained version has it, or none shows how it ended.
        """
        wanted = ulid_of(compaction_id)
        if file_id is not None:
            return await self._compacting.status_in(wanted, file_id)
        return await self._compacting.status(wanted)

    async def compactions(self, *, all_retained: bool = False) -> tuple[CompactionInfo, ...]:
        """Return all active compactions and the newest finished one, ascending by id.

        Args:
            all_retained: include all compactions in retained versions, and of older ones the last 200 that a record
                tells.

        Raises:
            LatestRecordMissing: there is no database.
        """
        return await self._compacting.list(all_retained=all_retained)

    async def wait_for_compaction(
        self,
        compaction_id: str | Ulid,
        on_progress: Callable[[CompactionInfo], None] | None = None,
        *,
        poll_interval_s: float = POLL_INTERVAL_S,
    ) -> CompactionInfo:
        """Wait until the compaction has completed or failed: see ``phase`` and ``error``.

        Without a running coordinator this never returns; limit it with ``anyio.move_on_after``.

        Args:
            on_progress: called after each poll with the newest status.

        Raises:
            NotFoundError: as in ``compaction_status``.
        """
        return await self._compacting.wait(ulid_of(compaction_id), on_progress, poll_interval_s=poll_interval_s)

    async def cancel_compaction(
        self, compaction_id: str | Ulid, *, confirm_s: float = 0.0, poll_interval_s: float = POLL_INTERVAL_S
    ) -> CompactionInfo:
        """Set a waiting or running compaction to Failed; its worker stops at the next heartbeat.

        Args:
            confirm_s: how long to check that the coordinator accepts the change; SlateDB's does not.

        Raises:
            NotFoundError: no retained version has it.
            TooLateToCancel: it already has its result, or has ended.
            CancelIgnored: the coordinator restored its own copy, so the compaction continues.
        """
        return await self._compacting.cancel(
            ulid_of(compaction_id), confirm_s=confirm_s, poll_interval_s=poll_interval_s
        )

    async def retry_compaction(self, compaction_id: str | Ulid) -> CompactionInfo:
        """Submit a failed compaction again, with the same sources; the destination of a new run is chosen again.

        Returns:
            The new compaction.

        Raises:
            NotFoundError: no retained version and no record has it.
            NotFailed: it has not failed.
            InvalidCompaction: its sources have changed, or belong to another active compaction.
        """
        return await self._compacting.retry(ulid_of(compaction_id))

    async def seq_at(self, time: Timestamp, *, round_up: bool = False) -> int | None:
        """Return the sequence number of the database at a time, from the newest manifest.

        Args:
            time: a ``datetime`` with a time zone, or milliseconds since 1970.
            round_up: use the first recorded point at or after the time, instead of the last one at or before it.

        Returns:
            ``None`` if there is no such point.

        Raises:
            LatestRecordMissing: there is no database.
        """
        return seq_at(await self._tracker(), time, round_up=round_up)

    async def time_of(self, seq: int, *, round_up: bool = False) -> datetime | None:
        """Return when the database reached a sequence number, to the second; see ``seq_at``."""
        return time_of(await self._tracker(), seq, round_up=round_up)

    async def _tracker(self) -> SequenceTracker:
        latest = await self._open.manifests.try_read_latest()
        if latest is None:
            raise LatestRecordMissing(f"there is no database at {self._where.root or '/'}")
        return SequenceTracker.decode(latest.value.sequence_tracker)

    def _not_entered(self) -> str:
        call, keyword = self._CALL
        return f"{call} is not open: write `{keyword} {call} as admin:`, and use it inside the block"

    @property
    def _open(self) -> AdminContext:
        if self._place is None:
            raise ClosedError(self._not_entered())
        return self._place

    @property
    def _compacting(self) -> CompactionAdmin:
        if self._compactions is None:
            raise ClosedError(self._not_entered())
        return self._compactions
