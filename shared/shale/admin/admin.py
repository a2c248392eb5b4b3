"""``Admin``: what is done to a database from outside its processes, as a thin front over the parts of this room."""

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self
from uuid import UUID

from shale.admin.checkpoints import CheckpointAdmin
from shale.admin.clones import CloneAdmin
from shale.admin.compactions import POLL_INTERVAL_S, CompactionAdmin, ulid_of
from shale.admin.destruction import DestroyMode, Destruction, destroy_at
from shale.admin.garbage import GarbageAdmin
from shale.admin.place import AdminPlace
from shale.admin.states import StateAdmin
from shale.admin.verify.report import VerifyReport
from shale.admin.verify.whole import Checked, OnProgress, VerifyOptions, verify_database
from shale.compaction.requests import CompactionRequest
from shale.compaction.status import CompactionInfo
from shale.engine.lifetime import Moment
from shale.engine.seq_times import seq_at, time_of
from shale.engine.where import resolve
from shale.env import Env
from shale.errors import ClosedError, LatestRecordMissing
from shale.format.sequence_tracker import SequenceTracker
from shale.format.transform import BlockTransformer
from shale.garbage.destroy import OnDeleted
from shale.protocol.checkpoint_names import checkpoint_reference
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Ulid


class Admin:
    """Use with ``async with``.  It works beside any mixture of processes, and only ``destroy`` fences any of them.

    Args:
        where: the database's URL; with ``store`` its path in that store.
        store: URL of a store, or a store object, which stays the caller's.
        path: the same as ``where``, for use with ``store``.
        wal_store: where the WAL lives, if not with the rest.
        env: the outside world; the real one by default.
        metrics: counts here; by default nowhere that is seen.
        store_options: how to talk to the store.
        block_transformer: what sections of SSTs and WAL files go through.

    Raises:
        InvalidRequestError: the place cannot be understood.
    """

    def __init__(
        self,
        where: str | None = None,
        *,
        store: str | ObjectStore | None = None,
        path: str | None = None,
        wal_store: str | ObjectStore | None = None,
        env: Env | None = None,
        metrics: Metrics | None = None,
        store_options: StoreOptions | None = None,
        block_transformer: BlockTransformer | None = None,
    ) -> None:
        self._where = resolve(
            where,
            store=store,
            path=path,
            wal_store=wal_store,
            store_options=store_options,
            block_transformer=block_transformer,
        )
        self._env = env if env is not None else Env.system()
        self._metrics = metrics if metrics is not None else Metrics()
        self._place: AdminPlace | None = None
        self._compactions: CompactionAdmin | None = None

    async def __aenter__(self) -> Self:
        stores = self._where.connect(self._env, self._metrics, component="admin")
        self._place = AdminPlace.of(stores, self._where.root, self._env, self._metrics)
        self._compactions = CompactionAdmin(stores.main, self._where.root, self._env, self._metrics)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        place, self._place, self._compactions = self._place, None, None
        if place is not None:
            await place.stores.aclose()

    @property
    def checkpoints(self) -> CheckpointAdmin:
        """States that are kept: create, refresh, delete, list."""
        return CheckpointAdmin(self._open)

    @property
    def states(self) -> StateAdmin:
        """Stored manifests and compactions files, as they are."""
        return StateAdmin(self._open)

    @property
    def clones(self) -> CloneAdmin:
        """Making this database a clone of others."""
        return CloneAdmin(self._open)

    async def verify(
        self,
        *,
        deep: bool = False,
        checkpoint: UUID | str | None = None,
        concurrency: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> VerifyReport:
        """Check that everything is there and can be read, and keeps the rules (docs/verify.md).  Nothing is written.

        Args:
            deep: read every row, too.
            checkpoint: an id or a name: only what this one keeps.
            concurrency: objects that are read at once.
            on_progress: called often.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidRequestError: its WAL is in a store of its own, and that was not named.
            CheckpointMissing: there is no such checkpoint.
            AmbiguousCheckpoint: several have that name.
        """
        place = self._open
        checked = Checked(
            store=place.stores.main,
            wal_store=place.stores.wal,
            root=place.root,
            env=place.env,
            transformer=self._where.block_transformer,
        )
        chosen = None if checkpoint is None else checkpoint_reference(checkpoint)
        options = VerifyOptions(deep=deep, checkpoint=chosen, concurrency=concurrency)
        return await verify_database(checked, options, on_progress)

    @property
    def garbage(self) -> GarbageAdmin:
        """What nobody can need any more: plan and collect."""
        return GarbageAdmin(self._open)

    async def destroy(
        self,
        mode: DestroyMode | str = DestroyMode.HARD,
        *,
        confirm: bool = False,
        force: bool = False,
        on_deleted: OnDeleted | None = None,
    ) -> Destruction:
        """Destroy the database for ever; run it again after an interruption.

        Writers, compactors and collectors of it are to be stopped before, and its path is not to be used again while
        one of them may still exist.  A soft destroy fences writer and compactor, and marks: nobody opens the database
        any more, and a collector deletes it when the grace is over and no checkpoint is left.

        Args:
            mode: ``hard`` or ``soft``.
            confirm: do it; by default nothing is written, and the result says what would be done.
            force: hard only: in spite of live checkpoints, and of objects below the path that are not the database's.
            on_deleted: called after each deletion.

        Raises:
            InvalidDbState: there is no database, but other objects; or it is not fit for a soft destroy.
            InvalidDeletion: checkpoints are alive, or there are objects of nobody known.
            InvalidRequestError: the WAL is in a store of its own that was not named.
            LatestRecordMissing: there is nothing to destroy softly.
        """
        return await destroy_at(self._open, mode, confirm=confirm, force=force, on_deleted=on_deleted)

    async def submit_compaction(
        self, request: CompactionRequest, *, dry_run: bool = False
    ) -> tuple[CompactionInfo, ...]:
        """Ask the coordinator for compactions: one per tree that the request concerns, perhaps none.

        Args:
            request: a ``Full``, ``FullSegment``, ``Sources`` or ``Spec`` of ``shale.compaction.requests``.
            dry_run: check and tell what would be submitted; write nothing.

        Raises:
            InvalidCompaction: a rule V1–V13 is broken; the message says what would be valid.  Nothing was written.
            LatestRecordMissing: there is no database.
            InvalidDbState: it is half built or destroyed, or no coordinator was ever started on it.
        """
        return await self._compacting.submit(request, dry_run=dry_run)

    async def compaction_status(self, compaction_id: str | Ulid, *, file_id: int | None = None) -> CompactionInfo:
        """What is known of one compaction, also of one that has ended while old versions tell of it.

        Args:
            file_id: only what this version of the compactions file says.

        Raises:
            NotFoundError: none of the stored versions knows it, or none tells how it ended.
        """
        wanted = ulid_of(compaction_id)
        if file_id is not None:
            return await self._compacting.status_in(wanted, file_id)
        return await self._compacting.status(wanted)

    async def compactions(self, *, all_retained: bool = False) -> tuple[CompactionInfo, ...]:
        """What is listed now: all active compactions and the newest finished one, by ascending id.

        Args:
            all_retained: everything that the stored versions still tell of.

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
        """Return once the compaction has ended, completed or failed: see ``phase`` and ``error``.

        Without a coordinator at work that is never; bound it with ``anyio.move_on_after``.

        Args:
            on_progress: called after every look, with the newest state.

        Raises:
            NotFoundError: as in ``compaction_status``.
        """
        return await self._compacting.wait(ulid_of(compaction_id), on_progress, poll_interval_s=poll_interval_s)

    async def cancel_compaction(
        self, compaction_id: str | Ulid, *, confirm_s: float = 0.0, poll_interval_s: float = POLL_INTERVAL_S
    ) -> CompactionInfo:
        """Make a waiting or running compaction Failed; its worker stops at its next heartbeat.

        Args:
            confirm_s: how long to watch whether the coordinator accepts that; SlateDB's does not.

        Raises:
            NotFoundError: none of the stored versions knows it.
            TooLateToCancel: it has its result already, or has ended.
            CancelIgnored: the coordinator wrote its own copy back, so the compaction goes on.
        """
        return await self._compacting.cancel(
            ulid_of(compaction_id), confirm_s=confirm_s, poll_interval_s=poll_interval_s
        )

    async def seq_at(self, time: Moment, *, round_up: bool = False) -> int | None:
        """The sequence number that the database had reached at a time, as far as the newest manifest tells.

        Args:
            time: a ``datetime`` with a time zone, or milliseconds since 1970.
            round_up: of the first known point at or after the time, instead of the last one at or before.

        Returns:
            ``None`` if there is no such point.

        Raises:
            LatestRecordMissing: there is no database.
        """
        return seq_at(await self._tracker(), time, round_up=round_up)

    async def time_of(self, seq: int, *, round_up: bool = False) -> datetime | None:
        """When the database had reached a sequence number, to the second; see ``seq_at``."""
        return time_of(await self._tracker(), seq, round_up=round_up)

    async def _tracker(self) -> SequenceTracker:
        latest = await self._open.manifests.try_read_latest()
        if latest is None:
            raise LatestRecordMissing(f"there is no database at {self._where.root or '/'}")
        return SequenceTracker.decode(latest.value.sequence_tracker)

    @property
    def _open(self) -> AdminPlace:
        if self._place is None:
            raise ClosedError("use an Admin inside async with")
        return self._place

    @property
    def _compacting(self) -> CompactionAdmin:
        if self._compactions is None:
            raise ClosedError("use an Admin inside async with")
        return self._compactions
