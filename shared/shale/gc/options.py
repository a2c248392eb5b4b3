"""Options of GC (docs/reference/protocol.md 8, Appendix A)."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Self, TypeAlias

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale.protocol.options import MissingBoundary, ProtocolOptions
from shale.types import MANIFEST_VERSION, ManifestVersion

DAY_S = 86_400.0
DELETE_GRACE_PERIOD_S = DAY_S
"""Minimum time from marking a database as destroyed to its deletion."""
FENCE_MIN_AGE_S = 7 * DAY_S
"""A fence proves that a WAL id was used.  It must outlive each suspended writer that may resume."""
STAGED_MIN_AGE_S = DAY_S
"""Younger temporaries are kept whatever ``min_age`` says: a put may still go on."""
STAGED_INTERVAL_S = 1800.0
"""Rarer than the other tasks, and well below the hour after which the alert SlateDBGCNotRunning fires."""


class Task(StrEnum):
    """GC tasks in the order of a single run; the values are metric labels."""

    MANIFEST = "manifest"
    WAL = "wal"
    WAL_FENCE = "wal_fence"
    COMPACTED = "compacted"
    COMPACTIONS = "compactions"
    DETACH = "detach"
    STAGED = "staged"

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the task of that name; ``wal-fence``, SlateDB's spelling, is accepted.

        Raises:
            InvalidRequestError: there is no such task.
        """
        try:
            return cls(name.replace("-", "_"))
        except ValueError as error:
            raise InvalidRequestError(f"{name!r} is none of {', '.join(cls)}") from error


GcFilter: TypeAlias = Callable[[Task, Sequence[str]], Awaitable[Iterable[str]]]
"""Called with the keys that may be deleted; returns those to delete.  It can exclude keys and cannot add any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options of one task.

    Args:
        interval_s: time between the starts of two passes.
        min_age_s: younger objects are kept; ``detach`` ignores it, and ``staged`` waits for at least a day.
        dry_run: write nothing; only log what a pass would delete.
    """

    interval_s: float = 600.0
    min_age_s: float = 300.0
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.interval_s <= 0 or self.min_age_s < 0:
            raise InvalidRequestError("a task of the collector needs a positive interval and no negative min_age")

    @property
    def min_age_ms(self) -> int:
        """``min_age_s`` in milliseconds."""
        return int(self.min_age_s * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class GcOptions:
    """The enabled tasks and their common options.

    Args:
        probe_max_staleness_s: how long this process trusts a cached latest version; the default is well below the
            age at which it deletes versions itself.
        boundary_files_enabled: must be the same for all collectors of a database (docs/reference/protocol.md 2.7).
        delete_concurrency: concurrent delete requests, each for up to 250 objects.
        filter: may exclude objects from deletion; released parents are not filtered.
        delete_grace_period_s: time from marking a database as destroyed to its deletion; ``None``: never delete it.
        manifest_write_version: see ``ProtocolOptions``.
    """

    manifest: TaskOptions | None = field(default_factory=TaskOptions)
    wal: TaskOptions | None = field(default_factory=TaskOptions)
    wal_fence: TaskOptions | None = None
    compacted: TaskOptions | None = field(default_factory=TaskOptions)
    compactions: TaskOptions | None = field(default_factory=TaskOptions)
    detach: TaskOptions | None = field(default_factory=TaskOptions)
    staged: TaskOptions | None = field(
        default_factory=lambda: TaskOptions(interval_s=STAGED_INTERVAL_S, min_age_s=STAGED_MIN_AGE_S)
    )
    probe_max_staleness_s: float | None = None
    missing_boundary: MissingBoundary = MissingBoundary.PANIC
    boundary_files_enabled: bool = True
    delete_concurrency: int = 8
    filter: GcFilter | None = None
    delete_grace_period_s: float | None = DELETE_GRACE_PERIOD_S
    manifest_write_version: ManifestVersion = MANIFEST_VERSION

    def __post_init__(self) -> None:
        if self.delete_grace_period_s is not None and self.delete_grace_period_s < 0:
            raise InvalidRequestError("delete_grace_period cannot be negative")
        fences = self.wal_fence
        if fences is not None and not fences.dry_run and fences.min_age_s < FENCE_MIN_AGE_S:
            raise InvalidRequestError(
                f"wal_fence min_age {fences.min_age_s:g} s is below 7 days: a writer that is suspended for longer "
                "would reuse a WAL id"
            )
        limit_s = self._versions_min_age_s()
        if self.probe_max_staleness_s is not None and limit_s is not None and self.probe_max_staleness_s >= limit_s:
            raise InvalidRequestError(
                f"probe_max_staleness {self.probe_max_staleness_s:g} s must be smaller than the min_age of manifest "
                f"and compactions, {limit_s:g} s"
            )
        if self.delete_concurrency < 1:
            raise InvalidRequestError("delete_concurrency must be at least 1")

    def task(self, task: Task) -> TaskOptions | None:
        """Return the options of one task; ``None`` if it is disabled."""
        options: TaskOptions | None = getattr(self, task.value)
        return options

    @property
    def enabled(self) -> tuple[Task, ...]:
        """The enabled tasks, in the order of a single run."""
        return tuple(task for task in Task if self.task(task) is not None)

    def protocol(self) -> ProtocolOptions:
        """Return the options for versioned files and boundaries in this process."""
        staleness_s = self.probe_max_staleness_s
        if staleness_s is None:
            limit_s = self._versions_min_age_s()
            default_s = ProtocolOptions().probe_max_staleness_s
            staleness_s = default_s if limit_s is None else min(default_s, limit_s / 2)
        return ProtocolOptions(
            component="gc",
            probe_max_staleness_s=staleness_s,
            missing_boundary=self.missing_boundary,
            boundary_files_enabled=self.boundary_files_enabled,
            manifest_write_version=self.manifest_write_version,
        )

    def _versions_min_age_s(self) -> float | None:
        tasks = (self.manifest, self.compactions)
        return min((task.min_age_s for task in tasks if task is not None and not task.dry_run), default=None)


def options_for(
    min_ages_s: Mapping[Task, float | None],
    *,
    boundary_files_enabled: bool = True,
    delete_grace_period_s: float | None = None,
) -> GcOptions:
    """Return options with exactly these tasks enabled; an age of ``None`` is the task's default.

    Args:
        delete_grace_period_s: ``None``, the default, never deletes the database.

    Raises:
        InvalidRequestError: fences younger than 7 days, or a negative age.
    """

    def of(task: Task) -> TaskOptions | None:
        if task not in min_ages_s:
            return None
        default_s = FENCE_MIN_AGE_S if task is Task.WAL_FENCE else TaskOptions().min_age_s
        age_s = min_ages_s[task]
        return TaskOptions(min_age_s=default_s if age_s is None else age_s)

    tasks: dict[str, Any] = {task.value: of(task) for task in Task}
    return GcOptions(
        **tasks,
        boundary_files_enabled=boundary_files_enabled,
        delete_grace_period_s=delete_grace_period_s,
    )
