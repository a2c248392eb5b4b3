"""The settings of the writer; ``options()`` is what the engine takes.

Engine settings have SlateDB's names and units, and the defaults of the engine's own options.
"""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from shale.api.settings import WritesHttpSection
from shale.engine.options import DbOptions, FlushType
from shale.resp.settings import RespSection
from shale.service.sections import (
    Bytes,
    DiskCacheSection,
    FilterSection,
    KeyRangeSection,
    PositiveSeconds,
    Seconds,
    SegmentExtractorSection,
    ShutdownSection,
)
from shale.service.settings import DaemonSettings, require_possible
from shale.sst.budget import DEFAULT_CAPACITY_BYTES
from shale.types import Compression

ENGINE = DbOptions()


class WriterShutdownSection(ShutdownSection):
    """How a writer stops."""

    flush: Literal["wal", "memtable", "none"] = Field(
        default="wal", description="How far a stop brings what was written; wal is quick and replays longer."
    )


class WriterSettings(DaemonSettings):
    """The writer: takes writes over HTTP, makes them durable, and serves reads."""

    ROLE: ClassVar[str] = "writer"

    http: WritesHttpSection = WritesHttpSection()
    resp: RespSection = RespSection()
    # Settings are frozen, so a narrower section is safe.
    shutdown: WriterShutdownSection = WriterShutdownSection()  # pyright: ignore[reportIncompatibleVariableOverride]

    flush_interval: Seconds | None = Field(
        default=ENGINE.flush_interval_s,
        description="How long rows may wait for the WAL; 0 is adaptive: whoever comes during a PUT shares the next.",
    )
    manifest_poll_interval: PositiveSeconds = Field(
        default=ENGINE.manifest_poll_interval_s,
        description="How often other writers and finished compactions are looked for.",
    )
    manifest_update_timeout: PositiveSeconds = Field(
        default=ENGINE.manifest_update_timeout_s,
        description="How long one update of the manifest may take with all its repetitions.",
    )
    l0_sst_size_bytes: Bytes = Field(
        default=ENGINE.l0_sst_size_bytes, description="A memtable of this size is frozen and becomes L0 SSTs."
    )
    max_wal_flushes_before_l0_flush: int = Field(
        default=ENGINE.max_wal_flushes_before_l0_flush,
        description="So many WAL files freeze a memtable too, whatever its size; bounds the replay.",
    )
    l0_max_ssts: int = Field(
        default=ENGINE.l0_max_ssts, description="SSTs in the L0 of a segment at which flushes wait for the compactor."
    )
    l0_max_ssts_per_key: int = Field(
        default=ENGINE.l0_max_ssts_per_key, description="The same, of those that hold one and the same key."
    )
    l0_flush_parallelism: int = Field(
        default=ENGINE.l0_flush_parallelism, description="L0 SSTs that are uploaded at a time."
    )
    max_unflushed_bytes: Bytes = Field(
        default=ENGINE.max_unflushed_bytes, description="Bytes that are in no SST yet, at which writes wait."
    )
    max_transaction_history_bytes: Bytes = Field(
        default=ENGINE.max_transaction_history_bytes,
        description="Of keys written since the oldest open transaction began; beyond that it ends with a conflict.",
    )
    wal_enabled: bool = Field(
        default=ENGINE.wal_enabled,
        description="Off: rows are durable only in L0, and a crash loses what was not flushed.",
    )
    compression_codec: Literal["none", "snappy", "zlib", "lz4", "zstd"] = Field(
        default="none", description="Of the blocks of new SSTs."
    )
    min_filter_keys: int = Field(default=ENGINE.min_filter_keys, description="SSTs with fewer keys get no filter.")
    filters: tuple[FilterSection, ...] = Field(default=(FilterSection(),), description="The filters of each SST.")
    default_ttl_millis: int | None = Field(
        default=ENGINE.default_ttl_ms, description="How long rows live that do not say so themselves; none: for ever."
    )
    writer_checkpoint: bool = Field(
        default=ENGINE.writer_checkpoint,
        description="Keep the SSTs that the writer serves under a checkpoint of its own, renewed with every change.",
    )
    checkpoint_flush_timeout: Seconds | None = Field(
        default=ENGINE.checkpoint_flush_timeout_s,
        description="How long a checkpoint of everything waits for L0 before it takes what is durable; none: for ever.",
    )
    merge_operator: str | None = Field(
        default=None,
        description="Built-in or registered name, or module:attribute; every process must use the same one.",
    )
    segment_extractor: SegmentExtractorSection | None = Field(
        default=None, description="Makes segments of new keys; a database keeps the one it began with."
    )
    enforce_visible_range: KeyRangeSection | None = Field(
        default=None,
        description="Writes outside are refused, and reads wholly outside. For one part of a split database.",
    )
    block_size_bytes: Bytes = Field(
        default=ENGINE.block_size_bytes, description="The size at which a block of an SST is full."
    )
    block_cache_bytes: Bytes = Field(
        default=DEFAULT_CAPACITY_BYTES, description="Memory for blocks, indexes and filters."
    )
    disk_cache: DiskCacheSection | None = Field(default=None, description="Parts of SSTs on a local disk.")
    max_key_bytes: Bytes = Field(default=ENGINE.max_key_bytes, description="Longer keys are refused.")
    wal_stall_limit: PositiveSeconds = Field(
        default=ENGINE.wal_stall_limit_s,
        description="After a pause this long a writer looks first whether it was fenced; below every min_age.",
    )
    probe_max_staleness: PositiveSeconds = Field(
        default=ENGINE.probe_max_staleness_s,
        description="What was known of the latest manifest is trusted for so long; below every min_age.",
    )
    missing_boundary: Literal["panic", "zero"] = Field(
        default="panic",
        description="What a missing boundary file means: somebody deleted it (panic), or there never was one (zero).",
    )
    boundary_files_enabled: bool = Field(
        default=ENGINE.boundary_files_enabled, description="Off only for stores without conditional updates."
    )
    boundary_files_off_acknowledged: bool = Field(
        default=False, description="Required to switch boundary files off: a stale writer may then commit."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "WriterSettings":
        if not self.boundary_files_enabled and not self.boundary_files_off_acknowledged:
            raise ValueError("boundary_files_enabled = false needs boundary_files_off_acknowledged = true")
        require_possible(self.options, self.merge_operator)
        return self

    def options(self) -> DbOptions:
        """The options of the engine.

        Raises:
            InvalidRequestError: they contradict each other.
        """
        return DbOptions(
            flush_interval_s=self.flush_interval,
            manifest_poll_interval_s=self.manifest_poll_interval,
            manifest_update_timeout_s=self.manifest_update_timeout,
            l0_sst_size_bytes=self.l0_sst_size_bytes,
            max_wal_flushes_before_l0_flush=self.max_wal_flushes_before_l0_flush,
            l0_max_ssts=self.l0_max_ssts,
            l0_max_ssts_per_key=self.l0_max_ssts_per_key,
            l0_flush_parallelism=self.l0_flush_parallelism,
            max_unflushed_bytes=self.max_unflushed_bytes,
            max_transaction_history_bytes=self.max_transaction_history_bytes,
            wal_enabled=self.wal_enabled,
            compression=Compression[self.compression_codec.upper()],
            min_filter_keys=self.min_filter_keys,
            filter_policies=tuple(each.policy() for each in self.filters),
            default_ttl_ms=self.default_ttl_millis,
            writer_checkpoint=self.writer_checkpoint,
            checkpoint_flush_timeout_s=self.checkpoint_flush_timeout,
            merge_operator=self.merge_operator,
            segment_extractor=None if self.segment_extractor is None else self.segment_extractor.extractor(),
            enforce_visible_range=None if self.enforce_visible_range is None else self.enforce_visible_range.keys(),
            block_size_bytes=self.block_size_bytes,
            block_cache_bytes=self.block_cache_bytes,
            disk_cache=self.disk_cache.options() if self.disk_cache is not None else None,
            max_key_bytes=self.max_key_bytes,
            wal_stall_limit_s=self.wal_stall_limit,
            probe_max_staleness_s=self.probe_max_staleness,
            missing_boundary=self.missing_boundary,
            boundary_files_enabled=self.boundary_files_enabled,
        )

    def needs_conditional_update(self) -> bool:
        """Only boundary files are updated in place."""
        return self.boundary_files_enabled

    def writes_to_wal(self) -> bool:
        """A writer without WAL claims its place in it, too."""
        return True

    def close_flush(self) -> FlushType:
        """How far a stop brings what was written."""
        return FlushType(self.shutdown.flush)
