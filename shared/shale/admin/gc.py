"""``admin.gc``: run GC manually, at once or as plan and execution (docs/how-to/gc.md)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from shale.admin.context import AdminContext
from shale.admin.destroy import destroy_target
from shale.core.settings_values import Duration, parse_duration_s
from shale.gc.collector import Collector
from shale.gc.options import DELETE_GRACE_PERIOD_S, GcOptions, Task, options_for
from shale.gc.passes import GcProgress
from shale.gc.plan import GcPlan
from shale.gc.soft_destroy import DeletionStatus, read_deletion_status

OnProgress = Callable[[Task, GcProgress], None]


class GcAdmin:
    """GC of one database."""

    def __init__(self, place: AdminContext) -> None:
        self._place = place

    async def plan(
        self,
        tasks: Iterable[Task | str] | None = None,
        *,
        min_age: Duration | None = None,
        on_progress: OnProgress | None = None,
    ) -> GcPlan:
        """Return what one pass would delete, each object with its size and reason.  Nothing is written.

        Args:
            tasks: by default all except fences.
            min_age: younger objects are kept; by default 5 minutes, and 7 days for fences.
            on_progress: called with the progress of each pass.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidRequestError: a ``min_age`` below 7 days for fences, or an unknown task.
            ManifestMissing: the manifest of a checkpoint is gone, so the objects that it needs are unknown.
        """
        return await self._collector(_options(tasks, min_age), on_progress).plan()

    async def run_once(
        self, options: GcOptions | None = None, *, on_progress: OnProgress | None = None
    ) -> Mapping[str, GcProgress]:
        """Run one pass of each enabled task; return the progress by task.

        A soft-destroyed database is deleted as a whole after ``delete_grace_period_s``, if no checkpoint prevents it;
        the result then has one entry, ``database``.

        Raises:
            LatestRecordMissing: there is no database.
            ShaleError: the first error of a pass; objects that cannot be deleted are only counted.
        """
        return await self._collector(options if options is not None else GcOptions(), on_progress).run_once()

    async def deletion_status(self, *, grace_s: float = DELETE_GRACE_PERIOD_S) -> DeletionStatus:
        """Return the phase of the deletion of a soft-destroyed database.  Nothing is written.

        Raises:
            LatestRecordMissing: it is marked, and there is no manifest.
            CorruptionError: the marker is malformed.
        """
        return await read_deletion_status(destroy_target(self._place), grace_s=grace_s, dry_run=True)

    async def run(
        self, plan: GcPlan, *, boundary_files_enabled: bool = True, on_progress: OnProgress | None = None
    ) -> Mapping[str, GcProgress]:
        """Delete the objects of a plan, provided that all of them may still be deleted; return the progress by task.

        Args:
            boundary_files_enabled: must be the same for all collectors of a database (docs/reference/protocol.md 2.7).

        Raises:
            InvalidDeletion: a planned object is needed again, or the plan is for another database.
                Nothing is deleted.
        """
        options = options_for(plan.min_ages_s, boundary_files_enabled=boundary_files_enabled)
        return await self._collector(options, on_progress).execute(plan)

    def _collector(self, options: GcOptions, on_progress: OnProgress | None) -> Collector:
        place = self._place
        return Collector(
            place.stores.main,
            place.root,
            place.env,
            replace(options, manifest_write_version=place.stores.manifest_write_version),
            place.metrics,
            wal_store=place.stores.wal,
            on_progress=on_progress,
        )


def _options(tasks: Iterable[Task | str] | None, min_age: Duration | None) -> GcOptions:
    min_age_s = None if min_age is None else parse_duration_s(min_age)
    return options_for(dict.fromkeys(tasks_of(tasks), min_age_s))


def tasks_of(names: Iterable[Task | str] | None) -> tuple[Task, ...]:
    """Return tasks by name, in the order of a single run; ``None``: all except fences.

    Raises:
        InvalidRequestError: there is no such task.
    """
    if names is None:
        return tuple(task for task in Task if task is not Task.WAL_FENCE)
    wanted = {Task.named(name) for name in names}
    return tuple(task for task in Task if task in wanted)
