"""The settings of the writer; ``options()`` is what the engine takes.

Engine settings have SlateDB's names and units, and the defaults of the engine's own options.
"""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from shale.api.settings import WritesHttpSection
from shale.engine.options import DbOptions, FlushType
from shale.errors import InvalidRequestError
from shale.merge_operators import operator_of
from shale.resp.settings import RespSection
from shale.service.sections import Bytes, DiskCacheSection, FilterSection, PositiveSeconds, Seconds, ShutdownSection
from shale.service.settings import DaemonSettings
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

    flush_interval: Seconds | None = Field(default=ENGINE.flush_interval_s, description="0 is adaptive.")
    manifest_poll_interval: PositiveSeconds = ENGINE.manifest_poll_interval_s
    manifest_update_timeout: PositiveSeconds = ENGINE.manifest_update_timeout_s
    l0_sst_size_bytes: Bytes = ENGINE.l0_sst_size_bytes
    max_wal_flushes_before_l0_flush: int = ENGINE.max_wal_flushes_before_l0_flush
    l0_max_ssts: int = ENGINE.l0_max_ssts
    l0_max_ssts_per_key: int = ENGINE.l0_max_ssts_per_key
    l0_flush_parallelism: int = ENGINE.l0_flush_parallelism
    max_unflushed_bytes: Bytes = ENGINE.max_unflushed_bytes
    wal_enabled: bool = ENGINE.wal_enabled
    compression_codec: Literal["none", "snappy", "zlib", "lz4", "zstd"] = "none"
    min_filter_keys: int = ENGINE.min_filter_keys
    filters: tuple[FilterSection, ...] = Field(default=(FilterSection(),), description="The filters of each SST.")
    default_ttl_millis: int | None = ENGINE.default_ttl_ms
    merge_operator: str | None = Field(
        default=None,
        description="Built-in or registered name, or module:attribute; every process must use the same one.",
    )
    block_size_bytes: Bytes = ENGINE.block_size_bytes
    block_cache_bytes: Bytes = DEFAULT_CAPACITY_BYTES
    disk_cache: DiskCacheSection | None = Field(default=None, description="Parts of SSTs on a local disk.")
    max_key_bytes: Bytes = ENGINE.max_key_bytes
    wal_stall_limit: PositiveSeconds = ENGINE.wal_stall_limit_s
    probe_max_staleness: PositiveSeconds = ENGINE.probe_max_staleness_s
    missing_boundary: Literal["panic", "zero"] = "panic"
    boundary_files_enabled: bool = ENGINE.boundary_files_enabled
    boundary_files_off_acknowledged: bool = Field(
        default=False, description="Required to switch boundary files off: a stale writer may then commit."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "WriterSettings":
        if not self.boundary_files_enabled and not self.boundary_files_off_acknowledged:
            raise ValueError("boundary_files_enabled = false needs boundary_files_off_acknowledged = true")
        try:
            self.options()
            operator_of(self.merge_operator)
        except InvalidRequestError as error:
            raise ValueError(str(error)) from error
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
            wal_enabled=self.wal_enabled,
            compression=Compression[self.compression_codec.upper()],
            min_filter_keys=self.min_filter_keys,
            filter_policies=tuple(each.policy() for each in self.filters),
            default_ttl_ms=self.default_ttl_millis,
            merge_operator=self.merge_operator,
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

    def close_flush(self) -> FlushType:
        """How far a stop brings what was written."""
        return FlushType(self.shutdown.flush)
