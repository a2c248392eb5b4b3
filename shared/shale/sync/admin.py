"""``shale.sync.Admin``: what is done to a database from outside, whose calls block."""

from collections.abc import Callable
from typing import Self

from shale.admin import admin
from shale.admin.compactions import POLL_INTERVAL_S
from shale.compaction.requests import CompactionRequest
from shale.compaction.status import CompactionInfo
from shale.env import Env
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.sync.background import background
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
        env: Env | None = None,
        metrics: Metrics | None = None,
        store_options: StoreOptions | None = None,
    ) -> None:
        self._inner = admin.Admin(where, store=store, path=path, env=env, metrics=metrics, store_options=store_options)
        self._background = background()

    def __enter__(self) -> Self:
        self._background.call(self._inner.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._background.call(self._inner.__aexit__(None, None, None))

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
