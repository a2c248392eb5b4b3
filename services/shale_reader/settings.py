"""The settings of the reader; ``options()`` returns the options of the engine.

Engine settings have SlateDB's names and units, and the defaults of the engine's options.
"""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from shale.core.memory_plan import BoundedSize, MemoryShare
from shale.engine.reader.options import ReaderMode, ReaderOptions
from shale.server.settings import ServerSettings, validate_options
from shale.service.config.engine_options import options_from
from shale.service.config.sections import Bytes, PositiveSeconds, ReadySection
from shale.sst.budget import DEFAULT_CAPACITY_BYTES

ENGINE = ReaderOptions()
MIB = 1 << 20
_MEMORY = (
    MemoryShare(
        name="max_replayed_bytes",
        default=1024 * MIB,
        least=4 * MIB,
        weight=5,
        factor=2.0,
        bounds=(BoundedSize("max_memtable_bytes", ENGINE.max_memtable_bytes, 0.25, 2.0),),
    ),
    MemoryShare(name="block_cache_bytes", default=DEFAULT_CAPACITY_BYTES, least=2 * MIB, weight=2),
)


class ReaderReadySection(ReadySection):
    """When the reader reports that it is not ready."""

    max_lag: PositiveSeconds = Field(
        default=60.0, description="The largest age of the served state; not checked for a pinned checkpoint."
    )


class ReaderSettings(ServerSettings):
    """The reader: follows a database and serves reads over HTTP and to Redis clients."""

    ROLE: ClassVar[str] = "reader"

    # Settings are frozen, so a narrower section is safe.
    ready: ReaderReadySection = ReaderReadySection()  # pyright: ignore[reportIncompatibleVariableOverride]

    checkpoint: str | None = Field(
        default=None, description="Serve this checkpoint (id or name) permanently instead of following the database."
    )
    follow_latest: bool = Field(
        default=False, description="Follow without a checkpoint: write nothing, and protect nothing from deletion."
    )
    manifest_poll_interval: PositiveSeconds = Field(
        default=ENGINE.manifest_poll_interval_s, description="How often to poll for a new manifest and WAL files."
    )
    checkpoint_lifetime: Literal["never"] | PositiveSeconds = Field(
        default=ENGINE.checkpoint_lifetime_s or "never",
        description="Lifetime of the reader's own checkpoint, which it renews; more than two poll intervals. "
        "never: without end, so that after a crash of the reader it must be deleted by hand.",
    )
    max_memtable_bytes: Bytes = Field(
        default=ENGINE.max_memtable_bytes, description="Size limit of one memtable of replayed WAL rows."
    )
    max_replayed_bytes: Bytes = Field(
        default=1024 * MIB,
        description="Limit of all rows that are replayed from the WAL, with those that only running scans still "
        "read; with more, the reader serves an older state until the writer has flushed them.",
    )
    skip_wal_replay: bool = Field(default=False, description="Serve only rows that are in SSTs.")
    allow_wal_gap: bool = Field(
        default=False, description="If WAL files are lost, serve the rows of all others instead of refusing."
    )
    block_cache_bytes: Bytes | None = Field(default=None, description="Memory for blocks, indexes and filters.")
    read_ahead_bytes: Bytes = Field(default=ENGINE.read_ahead_bytes, description="How many bytes a scan fetches ahead.")

    @model_validator(mode="after")
    def _is_consistent(self) -> "ReaderSettings":
        validate_options(self.options, self.merge_operator)
        return self

    def options(self) -> ReaderOptions:
        """Return the options of the engine.

        Raises:
            InvalidRequestError: settings are out of range or contradict each other.
        """
        lifetime = self.checkpoint_lifetime
        values = {**self.engine_values(), "checkpoint_lifetime_s": None if lifetime == "never" else lifetime}
        return options_from(ReaderOptions, self, **values)

    def engine_shares(self) -> tuple[MemoryShare, ...]:
        """Return the settings that bound replayed rows and caches."""
        return _MEMORY

    def needs_conditional_update(self) -> bool:
        """A reader creates manifests and updates no object in place."""
        return False

    def requires_writes(self) -> bool:
        """A reader serves what it has, also while it cannot renew its checkpoint."""
        return False

    def writes_to_store(self) -> bool:
        """Only a reader that manages its own checkpoint writes."""
        return self.options().mode is ReaderMode.MANAGED
