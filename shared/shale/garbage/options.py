"""What can be set about the garbage collector (docs/protocol.md 8, Appendix A)."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self, TypeAlias

from shale.errors import InvalidRequestError
from shale.protocol.options import MissingBoundary, ProtocolOptions

DAY_S = 86_400.0
DELETE_GRACE_S = DAY_S
"""How long a database stays, at least, after it was marked as destroyed."""
FENCE_MIN_AGE_S = 7 * DAY_S
"""A fence is the memory that a slot of the WAL was used; it must outlive every writer that may still wake up."""


class Task(StrEnum):
    """The tasks, in the order in which a single run goes through them; the values are labels of metrics."""

    MANIFEST = "manifest"
    WAL = "wal"
    WAL_FENCE = "wal_fence"
    COMPACTED = "compacted"
    COMPACTIONS = "compactions"
    DETACH = "detach"

    @classmethod
    def named(cls, name: str) -> Self:
        """The task of that name; SlateDB writes ``wal-fence``.

        Raises:
            InvalidRequestError: there is none.
        """
        try:
            return cls(name.replace("-", "_"))
        except ValueError as error:
            raise InvalidRequestError(f"{name!r} is none of {', '.join(cls)}") from error


GcFilter: TypeAlias = Callable[[Task, Sequence[str]], Awaitable[Iterable[str]]]
"""Called with keys that may go; returns those that shall.  It can keep objects and add none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """One task.

    Args:
        interval_s: time between two passes.
        min_age_s: younger objects stay; detaching has no use for it.
        dry_run: write nothing, only say what would go.
    """

    interval_s: float = 600.0
    min_age_s: float = 300.0
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.interval_s <= 0 or self.min_age_s < 0:
            raise InvalidRequestError("a task of the collector needs a positive interval and no negative min_age")

    @property
    def min_age_ms(self) -> int:
        """Milliseconds."""
        return int(self.min_age_s * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class GcOptions:
    """The tasks that are on, and what they share.

    Args:
        probe_max_staleness_s: how long this process believes that a version is the latest; by default well below the
            age at which it deletes versions itself.
        boundary_files_enabled: the same for all collectors of a database (docs/protocol.md 2.7).
        delete_concurrency: requests to delete at a time, each for up to 250 objects.
        filter: has a say in what goes, but not in letting go of parents.
        db_delete_grace_s: how long a database stays after it was marked as destroyed; ``None``: whoever collects here
            deletes none.
    """

    manifest: TaskOptions | None = field(default_factory=TaskOptions)
    wal: TaskOptions | None = field(default_factory=TaskOptions)
    wal_fence: TaskOptions | None = None
    compacted: TaskOptions | None = field(default_factory=TaskOptions)
    compactions: TaskOptions | None = field(default_factory=TaskOptions)
    detach: TaskOptions | None = field(default_factory=TaskOptions)
    probe_max_staleness_s: float | None = None
    missing_boundary: MissingBoundary = MissingBoundary.PANIC
    boundary_files_enabled: bool = True
    delete_concurrency: int = 8
    filter: GcFilter | None = None
    db_delete_grace_s: float | None = DELETE_GRACE_S

    def __post_init__(self) -> None:
        if self.db_delete_grace_s is not None and self.db_delete_grace_s < 0:
            raise InvalidRequestError("db_delete_grace cannot be negative")
        fences = self.wal_fence
        if fences is not None and not fences.dry_run and fences.min_age_s < FENCE_MIN_AGE_S:
            raise InvalidRequestError(
                f"wal_fence min_age {fences.min_age_s:g} s is below 7 days: a writer that sleeps longer than that "
                "would write into a slot that the log has passed"
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
        """The options of one task; ``None`` if it is off."""
        options: TaskOptions | None = getattr(self, task.value)
        return options

    @property
    def enabled(self) -> tuple[Task, ...]:
        """The tasks that are on, in the order of a single run."""
        return tuple(task for task in Task if self.task(task) is not None)

    def protocol(self) -> ProtocolOptions:
        """The options of sequenced files and boundaries in this process."""
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
        )

    def _versions_min_age_s(self) -> float | None:
        tasks = (self.manifest, self.compactions)
        return min((task.min_age_s for task in tasks if task is not None and not task.dry_run), default=None)


def options_for(
    min_ages_s: Mapping[Task, float | None],
    *,
    boundary_files_enabled: bool = True,
    db_delete_grace_s: float | None = None,
) -> GcOptions:
    """Options under which exactly these tasks are on; an age of ``None`` is the task's default.

    Args:
        db_delete_grace_s: by default no database is deleted.

    Raises:
        InvalidRequestError: fences younger than 7 days, or a negative age.
    """

    def of(task: Task) -> TaskOptions | None:
        if task not in min_ages_s:
            return None
        default_s = FENCE_MIN_AGE_S if task is Task.WAL_FENCE else TaskOptions().min_age_s
        age_s = min_ages_s[task]
        return TaskOptions(min_age_s=default_s if age_s is None else age_s)

    return GcOptions(
        manifest=of(Task.MANIFEST),
        wal=of(Task.WAL),
        wal_fence=of(Task.WAL_FENCE),
        compacted=of(Task.COMPACTED),
        compactions=of(Task.COMPACTIONS),
        detach=of(Task.DETACH),
        boundary_files_enabled=boundary_files_enabled,
        db_delete_grace_s=db_delete_grace_s,
    )
