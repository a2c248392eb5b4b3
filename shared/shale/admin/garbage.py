"""``admin.garbage``: collecting by hand, at once or in two steps with a look in between (docs/garbage.md)."""

from collections.abc import Callable, Iterable, Mapping

from shale.admin.place import AdminPlace
from shale.engine.settings_values import Duration, parse_duration_s
from shale.garbage.collector import Collector
from shale.garbage.destroy import DestroyTarget
from shale.garbage.options import DELETE_GRACE_S, GcOptions, Task, options_for
from shale.garbage.passes import Progress
from shale.garbage.plan import GcPlan
from shale.garbage.soft_destroy import DoomState, look_at_doom

OnProgress = Callable[[Task, Progress], None]


class GarbageAdmin:
    """What nobody can need any more, in one database."""

    def __init__(self, place: AdminPlace) -> None:
        self._place = place

    async def plan(
        self,
        tasks: Iterable[Task | str] | None = None,
        *,
        min_age: Duration | None = None,
        on_progress: OnProgress | None = None,
    ) -> GcPlan:
        """What one pass would delete, each object with its size and the reason.  Nothing is written.

        Args:
            tasks: by default everything but fences.
            min_age: younger objects stay; by default 5 minutes, and 7 days for fences.
            on_progress: is told how far a pass is.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidRequestError: fences younger than 7 days, or a task that does not exist.
            ManifestMissing: the manifest of a checkpoint is gone, so nobody can tell what it needs.
        """
        return await self._collector(_options(tasks, min_age), on_progress).plan()

    async def run_once(
        self, options: GcOptions | None = None, *, on_progress: OnProgress | None = None
    ) -> Mapping[str, Progress]:
        """One pass of every task that is on; returns what each of them did.

        A database that was destroyed softly goes as a whole once ``db_delete_grace_s`` is over and nothing holds it
        back; the result then has one entry, ``database``.

        Raises:
            LatestRecordMissing: there is no database.
            ShaleError: the first error of a pass; single objects that cannot be deleted are only counted.
        """
        return await self._collector(options if options is not None else GcOptions(), on_progress).run_once()

    async def doom(self, *, grace_s: float = DELETE_GRACE_S) -> DoomState:
        """How far the database is on its way out, if it was destroyed softly.  Nothing is written.

        Raises:
            LatestRecordMissing: it is marked, and there is no manifest.
            CorruptionError: the marker cannot be understood.
        """
        place = self._place
        target = DestroyTarget(
            store=place.stores.main, root=place.root, env=place.env, metrics=place.metrics, wal_store=place.stores.wal
        )
        return await look_at_doom(target, grace_s=grace_s, dry_run=True)

    async def run(
        self, plan: GcPlan, *, boundary_files_enabled: bool = True, on_progress: OnProgress | None = None
    ) -> Mapping[str, Progress]:
        """Delete what a plan names and what may be deleted now as well; returns what each task did.

        Args:
            boundary_files_enabled: the same for all collectors of a database (docs/protocol.md 2.7).

        Raises:
            InvalidDeletion: something that the plan names is needed again, or it is of another database.
                Nothing was deleted.
        """
        options = options_for(plan.min_ages_s, boundary_files_enabled=boundary_files_enabled)
        return await self._collector(options, on_progress).carry_out(plan)

    def _collector(self, options: GcOptions, on_progress: OnProgress | None) -> Collector:
        place = self._place
        return Collector(
            place.stores.main,
            place.root,
            place.env,
            options,
            place.metrics,
            wal_store=place.stores.wal,
            on_progress=on_progress,
        )


def _options(tasks: Iterable[Task | str] | None, min_age: Duration | None) -> GcOptions:
    min_age_s = None if min_age is None else parse_duration_s(min_age)
    return options_for(dict.fromkeys(tasks_of(tasks), min_age_s))


def tasks_of(names: Iterable[Task | str] | None) -> tuple[Task, ...]:
    """Tasks by their names, in the order of a single run; ``None``: everything but fences.

    Raises:
        InvalidRequestError: there is no such task.
    """
    if names is None:
        return tuple(task for task in Task if task is not Task.WAL_FENCE)
    wanted = {Task.named(name) for name in names}
    return tuple(task for task in Task if task in wanted)
