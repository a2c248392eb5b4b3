"""The settings of the collector; ``options()`` is what it takes.

The tasks stand under ``garbage_collector_options`` with SlateDB's names and units, so that a file written for SlateDB
is read as it is.
"""

from typing import ClassVar

from pydantic import Field, model_validator

from shale.errors import InvalidRequestError
from shale.protocol.options import MissingBoundary
from shale.service.sections import PositiveSeconds, Seconds, Section
from shale.service.settings import DaemonSettings
from shale_gc.options import FENCE_MIN_AGE_S, GcOptions, TaskOptions

DEFAULT = TaskOptions()


class TaskSection(Section):
    """One task."""

    interval: PositiveSeconds = DEFAULT.interval_s
    min_age: Seconds = Field(default=DEFAULT.min_age_s, description="Younger objects stay.")
    dry_run: bool = Field(default=DEFAULT.dry_run, description="Only say what would go.")

    def options(self, *, dry_run: bool) -> TaskOptions:
        """The plain value."""
        return TaskOptions(interval_s=self.interval, min_age_s=self.min_age, dry_run=self.dry_run or dry_run)


class FenceSection(TaskSection):
    """The task for fences, which is off by default."""

    min_age: Seconds = Field(default=FENCE_MIN_AGE_S, description="At least 7 days, unless dry_run is on.")


class DetachSection(Section):
    """Letting go of parents of a clone."""

    interval: PositiveSeconds = DEFAULT.interval_s


class GcOptionsSection(Section):
    """SlateDB's ``garbage_collector_options``; a task set to null is off."""

    manifest_options: TaskSection | None = TaskSection()
    wal_options: TaskSection | None = TaskSection()
    wal_fence_options: FenceSection | None = None
    compacted_options: TaskSection | None = TaskSection()
    compactions_options: TaskSection | None = TaskSection()
    detach_options: DetachSection | None = DetachSection()
    boundary_files_enabled: bool = Field(
        default=True, description="Off only for stores without conditional updates, and then in every collector."
    )


class GcSettings(DaemonSettings):
    """The garbage collector: deletes what no reader, writer or compactor can need any more."""

    ROLE: ClassVar[str] = "gc"
    FLAGS: ClassVar[tuple[str, ...]] = ("dry_run",)

    garbage_collector_options: GcOptionsSection = GcOptionsSection()
    dry_run: bool = Field(default=False, description="Write nothing at all, only say what would go.")
    delete_concurrency: int = Field(default=8, ge=1, le=256, description="Deletions at a time.")
    probe_max_staleness: Seconds | None = Field(
        default=None, description="Smaller than the min_age of manifest and compactions; by default it follows them."
    )
    missing_boundary: MissingBoundary = MissingBoundary.PANIC
    boundary_files_off_acknowledged: bool = Field(
        default=False, description="Required to switch boundary files off: a stale writer may then commit."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "GcSettings":
        if not self.garbage_collector_options.boundary_files_enabled and not self.boundary_files_off_acknowledged:
            raise ValueError("boundary_files_enabled = false needs boundary_files_off_acknowledged = true")
        try:
            self.options()
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self

    def options(self) -> GcOptions:
        """The options of the collector.

        Raises:
            InvalidRequestError: they contradict each other.
        """
        section = self.garbage_collector_options

        def task(of: TaskSection | None) -> TaskOptions | None:
            return of.options(dry_run=self.dry_run) if of is not None else None

        detach = section.detach_options
        return GcOptions(
            manifest=task(section.manifest_options),
            wal=task(section.wal_options),
            wal_fence=task(section.wal_fence_options),
            compacted=task(section.compacted_options),
            compactions=task(section.compactions_options),
            detach=TaskOptions(interval_s=detach.interval, dry_run=self.dry_run) if detach is not None else None,
            probe_max_staleness_s=self.probe_max_staleness,
            missing_boundary=self.missing_boundary,
            boundary_files_enabled=section.boundary_files_enabled,
            delete_concurrency=self.delete_concurrency,
        )
