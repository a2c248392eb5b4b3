"""Settings of the GC daemon.

The tasks are under ``garbage_collector_options`` with SlateDB's names and units, so that a SlateDB configuration
file can be used unchanged.
"""

from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from shale.errors import InvalidRequestError
from shale.gc.options import (
    DELETE_GRACE_PERIOD_S,
    FENCE_MIN_AGE_S,
    STAGED_INTERVAL_S,
    STAGED_MIN_AGE_S,
    GcOptions,
    TaskOptions,
)
from shale.service.config.backup_section import BackupSection
from shale.service.config.section import Section
from shale.service.config.sections import PositiveSeconds, Seconds, UrlsByName
from shale.service.config.settings import BoundarySettings
from shale.service.config.several_databases import SeveralDatabasesSettings
from shale.store.location import normalize_path, parse_store_url

DEFAULT = TaskOptions()
BACKUP_MAX_AGE_S = 26 * 3600.0
"""A daily backup may take two hours longer than the one before."""


def _require_wal_store(path: str, url: str) -> None:
    try:
        if normalize_path(path) != path:
            raise InvalidRequestError(f"write the path as {normalize_path(path)!r}")
        parse_store_url(url)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"wal_stores: {path}: {error}") from error


class TaskSection(Section):
    """Settings of one task."""

    interval: PositiveSeconds = Field(default=DEFAULT.interval_s, description="Time between the starts of two passes.")
    min_age: Seconds = Field(default=DEFAULT.min_age_s, description="Younger objects are kept.")
    dry_run: bool = Field(default=DEFAULT.dry_run, description="Only log what would be deleted.")

    def options(self, *, dry_run: bool) -> TaskOptions:
        """Return the options of the task."""
        return TaskOptions(interval_s=self.interval, min_age_s=self.min_age, dry_run=self.dry_run or dry_run)


class FenceSection(TaskSection):
    """Settings of the task for fences, which is disabled by default."""

    min_age: Seconds = Field(default=FENCE_MIN_AGE_S, description="At least 7 days, unless dry_run is on.")


class StagedSection(TaskSection):
    """Settings of the task for temporaries in the directories of manifests, compactions and WAL files."""

    interval: PositiveSeconds = Field(default=STAGED_INTERVAL_S, description="Time between the starts of two passes.")
    min_age: Seconds = Field(
        default=STAGED_MIN_AGE_S, description="Younger objects are kept; less than a day counts as a day."
    )


class DetachSection(Section):
    """Settings of the task that releases the parents of a clone."""

    interval: PositiveSeconds = Field(default=DEFAULT.interval_s, description="Time between the starts of two passes.")


class GcOptionsSection(Section):
    """SlateDB's ``garbage_collector_options``; a task set to null or ``off`` is disabled."""

    manifest_options: TaskSection | None = TaskSection()
    wal_options: TaskSection | None = TaskSection()
    wal_fence_options: FenceSection | None = None
    compacted_options: TaskSection | None = TaskSection()
    compactions_options: TaskSection | None = TaskSection()
    detach_options: DetachSection | None = DetachSection()
    staged_options: StagedSection | None = StagedSection()
    boundary_files_enabled: bool = Field(
        default=True, description="Off only for stores without conditional updates, and then for all GC processes."
    )

    @field_validator("*", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        """Map ``null`` and ``off`` to ``None``: environment variables and the command line have no null."""
        return None if value in ("null", "off") else value


class BackupWatchSection(BackupSection):
    """The place of the backups, which the gc only reads, for metrics and alerts."""

    max_age: PositiveSeconds = Field(
        default=BACKUP_MAX_AGE_S, description="An alert fires if no backup has begun for so long."
    )
    interval: PositiveSeconds = Field(default=300.0, description="Time between two looks at the place.")


class GcSettings(SeveralDatabasesSettings, BoundarySettings):
    """GC: deletes objects that no reader, writer or compactor can need.  Once, as a command: gc run and gc plan."""

    ROLE: ClassVar[str] = "gc"
    FLAGS: ClassVar[tuple[str, ...]] = ("dry_run", "once")
    RELOADED: ClassVar[tuple[str, ...]] = (
        *SeveralDatabasesSettings.RELOADED, "databases_interval", "delete_concurrency", "garbage_collector_options",
    )  # fmt: skip

    garbage_collector_options: GcOptionsSection = GcOptionsSection()
    wal_stores: UrlsByName = Field(
        default={}, description='Stores of WALs by database path, for example { "orders" = "s3://wal-bucket" }.'
    )
    backup: BackupWatchSection = BackupWatchSection()
    dry_run: bool = Field(default=False, description="Write nothing; only log what would be deleted.")
    once: bool = Field(default=False, description="Run one pass over each database, then exit.")
    delete_concurrency: int = Field(default=8, ge=1, le=256, description="Concurrent delete requests.")
    delete_grace_period: Seconds = Field(
        default=DELETE_GRACE_PERIOD_S, description="Time from marking a database as destroyed to its deletion."
    )
    probe_max_staleness: Seconds | None = Field(
        default=None,
        description="Must be below the min_age of manifest and compactions; the default is derived from them.",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "GcSettings":
        try:
            self.options()
            for path, url in self.wal_stores.items():
                _require_wal_store(path, url.get_secret_value())
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def admin_listen_port(self) -> int:
        """The admin port to open: for one pass any free one, because a daemon beside it may have the usual one."""
        return 0 if self.once and "port" not in self.admin.model_fields_set else self.admin.port

    def uses_boundary_files(self) -> bool:
        """Whether boundary files are enabled."""
        return self.garbage_collector_options.boundary_files_enabled

    def options(self) -> GcOptions:
        """Return the options of a collector.

        Raises:
            InvalidRequestError: the settings contradict each other.
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
            staged=task(section.staged_options),
            probe_max_staleness_s=self.probe_max_staleness,
            missing_boundary=self.missing_boundary,
            boundary_files_enabled=section.boundary_files_enabled,
            delete_concurrency=self.delete_concurrency,
            delete_grace_period_s=None if self.dry_run else self.delete_grace_period,
            manifest_write_version=self.manifest.write_version,
        )
