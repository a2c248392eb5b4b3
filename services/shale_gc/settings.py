"""The settings of the collector; ``options()`` is what it takes.

The tasks stand under ``garbage_collector_options`` with SlateDB's names and units, so that a file written for SlateDB
is read as it is.
"""

from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from shale.errors import InvalidRequestError
from shale.garbage.options import DELETE_GRACE_S, FENCE_MIN_AGE_S, GcOptions, TaskOptions
from shale.protocol.options import MissingBoundary
from shale.service.sections import PositiveSeconds, Seconds, Section, Texts, TextsByName
from shale.service.settings import DaemonSettings
from shale.store.location import normalize_path, parse_store_url

DEFAULT = TaskOptions()


def _require_wal_store(path: str, url: str) -> None:
    try:
        if normalize_path(path) != path:
            raise InvalidRequestError(f"write the path as {normalize_path(path)!r}")
        parse_store_url(url)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"wal_stores: {path}: {error}") from error


class TaskSection(Section):
    """One task."""

    interval: PositiveSeconds = Field(default=DEFAULT.interval_s, description="From one pass to the next.")
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

    interval: PositiveSeconds = Field(default=DEFAULT.interval_s, description="From one pass to the next.")


class GcOptionsSection(Section):
    """SlateDB's ``garbage_collector_options``; a task set to null, or ``off``, is off."""

    manifest_options: TaskSection | None = TaskSection()
    wal_options: TaskSection | None = TaskSection()
    wal_fence_options: FenceSection | None = None
    compacted_options: TaskSection | None = TaskSection()
    compactions_options: TaskSection | None = TaskSection()
    detach_options: DetachSection | None = DetachSection()
    boundary_files_enabled: bool = Field(
        default=True, description="Off only for stores without conditional updates, and then in every collector."
    )

    @field_validator("*", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        """Variables and the command line have no null of their own."""
        return None if value in ("null", "off") else value


class GcSettings(DaemonSettings):
    """The garbage collector: deletes what no reader, writer or compactor can need any more."""

    ROLE: ClassVar[str] = "gc"
    FLAGS: ClassVar[tuple[str, ...]] = ("dry_run", "once")

    garbage_collector_options: GcOptionsSection = GcOptionsSection()
    databases: Texts = Field(default=(), description="Paths of further databases in the same store.")
    databases_below: str | None = Field(
        default=None, description="Every database directly below this path of the store too, also those to come."
    )
    databases_interval: PositiveSeconds = Field(
        default=60.0, description="How often databases that are not there yet, or are not known yet, are looked for."
    )
    wal_stores: TextsByName = Field(
        default={}, description='Stores of WALs by database path, for example { "orders" = "s3://wal-bucket" }.'
    )
    dry_run: bool = Field(default=False, description="Write nothing at all, only say what would go.")
    once: bool = Field(default=False, description="One pass over each database, and then the end.")
    delete_concurrency: int = Field(default=8, ge=1, le=256, description="Deletions at a time.")
    db_delete_grace: Seconds = Field(
        default=DELETE_GRACE_S, description="How long a database stays after it was marked as destroyed."
    )
    probe_max_staleness: Seconds | None = Field(
        default=None, description="Smaller than the min_age of manifest and compactions; by default it follows them."
    )
    missing_boundary: MissingBoundary = Field(
        default=MissingBoundary.PANIC,
        description="What a missing boundary file means: somebody deleted it (panic), or there never was one (zero).",
    )
    boundary_files_off_acknowledged: bool = Field(
        default=False, description="Required to switch boundary files off: a stale writer may then commit."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "GcSettings":
        if not self.garbage_collector_options.boundary_files_enabled and not self.boundary_files_off_acknowledged:
            raise ValueError("boundary_files_enabled = false needs boundary_files_off_acknowledged = true")
        try:
            self.options()
            self.roots()
            normalize_path(self.databases_below or "")
            for path, url in self.wal_stores.items():
                _require_wal_store(path, url)
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self

    def roots(self) -> tuple[str, ...]:
        """The paths of the databases that are named; a store without a path names none if others are.

        Raises:
            InvalidRequestError: a path cannot be one.
        """
        path = self.database.location().path
        others = [normalize_path(each) for each in self.databases]
        named_alone = not others and self.databases_below is None
        return tuple(dict.fromkeys([*([path] if path or named_alone else []), *others]))

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
            db_delete_grace_s=None if self.dry_run else self.db_delete_grace,
        )
