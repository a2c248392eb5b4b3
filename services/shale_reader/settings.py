"""The settings of the reader; ``options()`` is what the engine takes.

Engine settings have SlateDB's names and units, and the defaults of the engine's own options.
"""

from typing import ClassVar

from pydantic import Field, model_validator

from shale.api.settings import HttpSection
from shale.engine.reader_options import ReaderMode, ReaderOptions
from shale.resp.settings import RespSection
from shale.service.sections import (
    Bytes,
    DiskCacheSection,
    FilterSection,
    KeyRangeSection,
    PositiveSeconds,
    ReadySection,
    SegmentExtractorSection,
)
from shale.service.settings import DaemonSettings, require_possible

ENGINE = ReaderOptions()


class ReaderReadySection(ReadySection):
    """When the reader says that it cannot do its job."""

    max_lag: PositiveSeconds = Field(
        default=60.0, description="How old what is served may be; of a pinned reader it does not count."
    )


class ReaderSettings(DaemonSettings):
    """The reader: follows a database and serves reads over HTTP, and to clients of Redis."""

    ROLE: ClassVar[str] = "reader"

    http: HttpSection = HttpSection()
    resp: RespSection = RespSection()
    # Settings are frozen, so a narrower section is safe.
    ready: ReaderReadySection = ReaderReadySection()  # pyright: ignore[reportIncompatibleVariableOverride]

    checkpoint: str | None = Field(
        default=None, description="Serve this checkpoint, named by its id or name, for ever, instead of following."
    )
    follow_latest: bool = Field(
        default=False, description="Follow without a checkpoint: nothing is written, and nothing is protected."
    )
    manifest_poll_interval: PositiveSeconds = Field(
        default=ENGINE.manifest_poll_interval_s, description="How often news is looked for."
    )
    checkpoint_lifetime: PositiveSeconds = Field(
        default=ENGINE.checkpoint_lifetime_s,
        description="How long the own checkpoint holds unless it is renewed; at least two polls.",
    )
    max_memtable_bytes: Bytes = Field(
        default=ENGINE.max_memtable_bytes,
        description="Rows of the WAL that are replayed into one memtable before the next is begun.",
    )
    skip_wal_replay: bool = Field(default=False, description="Serve what is in SSTs only.")
    merge_operator: str | None = Field(
        default=None, description="Built-in or registered name, or module:attribute; the writer's."
    )
    segment_extractor: SegmentExtractorSection | None = Field(
        default=None, description="The writer's, to be compared with the database's; reading does without."
    )
    enforce_visible_range: KeyRangeSection | None = Field(
        default=None, description="Reads wholly outside are refused. For one part of a split database."
    )
    block_cache_bytes: Bytes | None = Field(default=None, description="For blocks, indexes and filters.")
    disk_cache: DiskCacheSection | None = Field(default=None, description="Parts of SSTs on a local disk.")
    filters: tuple[FilterSection, ...] = Field(
        default=(FilterSection(),), description="The writer's: what prefixes are is not stored with filters."
    )
    read_ahead_bytes: Bytes = Field(default=ENGINE.read_ahead_bytes, description="What a scan fetches ahead.")
    probe_max_staleness: PositiveSeconds = Field(
        default=ENGINE.probe_max_staleness_s,
        description="What was known of the latest manifest is trusted for so long; below every min_age.",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "ReaderSettings":
        require_possible(self.options, self.merge_operator)
        return self

    def options(self) -> ReaderOptions:
        """The options of the engine.

        Raises:
            InvalidRequestError: they contradict each other.
        """
        return ReaderOptions(
            checkpoint=self.checkpoint,
            follow_latest=self.follow_latest,
            manifest_poll_interval_s=self.manifest_poll_interval,
            checkpoint_lifetime_s=self.checkpoint_lifetime,
            max_memtable_bytes=self.max_memtable_bytes,
            skip_wal_replay=self.skip_wal_replay,
            merge_operator=self.merge_operator,
            segment_extractor=None if self.segment_extractor is None else self.segment_extractor.extractor(),
            enforce_visible_range=None if self.enforce_visible_range is None else self.enforce_visible_range.keys(),
            block_cache_bytes=self.block_cache_bytes,
            disk_cache=self.disk_cache.options() if self.disk_cache is not None else None,
            filter_policies=tuple(each.policy() for each in self.filters),
            read_ahead_bytes=self.read_ahead_bytes,
            probe_max_staleness_s=self.probe_max_staleness,
        )

    def needs_conditional_update(self) -> bool:
        """A reader creates manifests, and updates nothing in place."""
        return False

    def writes_to_store(self) -> bool:
        """Only a reader with a checkpoint of its own does."""
        return self.options().mode is ReaderMode.MANAGED
