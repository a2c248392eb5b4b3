"""What can be set about the garbage collector (docs/protocol.md 8, Appendix A)."""

from dataclasses import dataclass, field
from enum import StrEnum

from shale.errors import InvalidRequestError
from shale.protocol.options import MissingBoundary, ProtocolOptions

DAY_S = 86_400.0
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
        delete_concurrency: deletions at a time.
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

    def __post_init__(self) -> None:
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
