"""``shale.sync.Admin``: what is done to a database from outside, whose calls block."""

from collections.abc import Callable
from datetime import datetime
from typing import Self
from uuid import UUID

from shale.admin import admin
from shale.admin.compactions import POLL_INTERVAL_S
from shale.admin.destruction import DestroyMode, Destruction
from shale.admin.verify.report import VerifyReport
from shale.admin.verify.whole import OnProgress
from shale.compaction.requests import CompactionRequest
from shale.compaction.status import CompactionInfo
from shale.engine.lifetime import Moment
from shale.env import Env
from shale.format.transform import BlockTransformer
from shale.garbage.destroy import OnDeleted
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.sync.admin_parts import CheckpointAdmin, GarbageAdmin, StateAdmin
from shale.sync.background import background
from shale.sync.clones import Clones
from shale.telemetry.metrics import Metrics
from shale.types import Ulid


class Admin:
    """Use with ``with``; see ``shale.Admin`` for arguments and errors."""

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
        self._inner = admin.Admin(
            where,
            store=store,
            path=path,
            wal_store=wal_store,
            env=env,
            metrics=metrics,
            store_options=store_options,
            block_transformer=block_transformer,
        )
        self._background = background()

    def __enter__(self) -> Self:
        self._background.call(self._inner.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._background.call(self._inner.__aexit__(None, None, None))

    @property
    def clones(self) -> Clones:
        """Making this database a clone of others."""
        return Clones(self._inner.clones, self._background)

    @property
    def checkpoints(self) -> CheckpointAdmin:
        """States that are kept: create, refresh, delete, list."""
        return CheckpointAdmin(self._inner.checkpoints, self._background)

    @property
    def states(self) -> StateAdmin:
        """Stored manifests and compactions files, as they are."""
        return StateAdmin(self._inner.states, self._background)

    @property
    def garbage(self) -> GarbageAdmin:
        """What nobody can need any more: plan and collect."""
        return GarbageAdmin(self._inner.garbage, self._background)

    def verify(
        self,
        *,
        deep: bool = False,
        checkpoint: UUID | str | None = None,
        concurrency: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> VerifyReport:
        """Check that everything is there and can be read, and keeps the rules; see ``shale.Admin.verify``."""
        checking = self._inner.verify(
            deep=deep, checkpoint=checkpoint, concurrency=concurrency, on_progress=on_progress
        )
        return self._background.call(checking)

    def destroy(
        self,
        mode: DestroyMode | str = DestroyMode.HARD,
        *,
        confirm: bool = False,
        force: bool = False,
        on_deleted: OnDeleted | None = None,
    ) -> Destruction:
        """Destroy the database for ever; see ``shale.Admin.destroy``."""
        destroying = self._inner.destroy(mode, confirm=confirm, force=force, on_deleted=on_deleted)
        return self._background.call(destroying)

    def seq_at(self, time: Moment, *, round_up: bool = False) -> int | None:
        """The sequence number that the database had reached at a time; see ``shale.Admin.seq_at``."""
        return self._background.call(self._inner.seq_at(time, round_up=round_up))

    def time_of(self, seq: int, *, round_up: bool = False) -> datetime | None:
        """When the database had reached a sequence number; see ``shale.Admin.time_of``."""
        return self._background.call(self._inner.time_of(seq, round_up=round_up))

    def submit_compaction(self, request: CompactionRequest, *, dry_run: bool = False) -> tuple[CompactionInfo, ...]:
        """Ask the coordinator for compactions; see ``shale.Admin.submit_compaction``."""
        return self._background.call(self._inner.submit_compaction(request, dry_run=dry_run))

    def compaction_status(self, compaction_id: str | Ulid, *, file_id: int | None = None) -> CompactionInfo:
        """What is known of one compaction; see ``shale.Admin.compaction_status``."""
        return self._background.call(self._inner.compaction_status(compaction_id, file_id=file_id))

    def compactions(self, *, all_retained: bool = False) -> tuple[CompactionInfo, ...]:
        """What is listed now; see ``shale.Admin.compactions``."""
        return self._background.call(self._inner.compactions(all_retained=all_retained))

    def wait_for_compaction(
        self,
        compaction_id: str | Ulid,
        on_progress: Callable[[CompactionInfo], None] | None = None,
        *,
        poll_interval_s: float = POLL_INTERVAL_S,
    ) -> CompactionInfo:
        """Return once the compaction has ended; ``on_progress`` is called in the thread of the loop."""
        waiting = self._inner.wait_for_compaction(compaction_id, on_progress, poll_interval_s=poll_interval_s)
        return self._background.call(waiting)

    def cancel_compaction(
        self, compaction_id: str | Ulid, *, confirm_s: float = 0.0, poll_interval_s: float = POLL_INTERVAL_S
    ) -> CompactionInfo:
        """Make a waiting or running compaction Failed; see ``shale.Admin.cancel_compaction``."""
        return self._background.call(
            self._inner.cancel_compaction(compaction_id, confirm_s=confirm_s, poll_interval_s=poll_interval_s)
        )
