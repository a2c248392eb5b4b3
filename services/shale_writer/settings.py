"""The settings of the writer; ``options()`` returns the options of the engine.

Engine settings have SlateDB's names and units, and the defaults of the engine's options.
"""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from shale.api.settings import WritesHttpSection
from shale.core.memory_plan import BoundedSize, MemoryShare
from shale.core.token_hash import is_token_hash
from shale.engine.options import DbOptions, FlushType
from shale.server.settings import ServerSettings, validate_options
from shale.service.config.access.tokens import PlainToken
from shale.service.config.engine_options import options_from
from shale.service.config.secret_url import SecretUrl, url_text
from shale.service.config.section import Section
from shale.service.config.sections import Bytes, CompressionCodec, PositiveSeconds, Seconds
from shale.service.config.settings import BoundaryFilesSettings
from shale.service.config.shutdown_section import ShutdownSection
from shale.sst.budget import DEFAULT_CAPACITY_BYTES
from shale.types import Compression
from shale_writer.standby.decision import StandbyPolicy

MIB = 1 << 20
ENGINE = DbOptions()
_MEMORY = (
    MemoryShare(
        name="max_unflushed_bytes",
        default=ENGINE.max_unflushed_bytes,
        least=4 * MIB,
        weight=5,
        factor=1.75,
        bounds=(BoundedSize("l0_sst_size_bytes", ENGINE.l0_sst_size_bytes, 0.25, 2.0),),
    ),
    MemoryShare(name="block_cache_bytes", default=DEFAULT_CAPACITY_BYTES, least=2 * MIB, weight=2),
    MemoryShare(
        name="max_transaction_history_bytes",
        default=ENGINE.max_transaction_history_bytes,
        least=MIB,
        weight=0.5,
    ),
)
_STANDBY = MemoryShare(name="standby.wal_cache_bytes", default=256 * MIB, least=2 * MIB, weight=1)
POLICY = StandbyPolicy()


class WriterShutdownSection(ShutdownSection):
    """How a writer stops."""

    flush: Literal["wal", "memtable", "none"] = Field(
        default="wal", description="What to flush at a stop; wal is quick, but the next start replays more."
    )


class WalSection(Section):
    """How the WAL is written."""

    flush_bytes: Bytes | None = Field(
        default=ENGINE.wal_flush_bytes,
        description="A WAL file is closed and written at this size; none: at l0_sst_size_bytes.",
    )
    epoch_metadata: bool = Field(
        default=ENGINE.wal_epoch_metadata,
        description="WAL files carry the epoch of their writer as metadata, where the store keeps metadata.",
    )
    max_parallel_writes: int | None = Field(
        default=ENGINE.max_parallel_writes,
        description="WAL files that are written at the same time, fixed at creation; none: as the database has, or 1.",
    )
    ack: Literal["contiguous", "as_landed"] = Field(
        default="contiguous",
        description="With parallel WAL files, a row is durable with all older ones (contiguous), or with its own file.",
    )


class StandbySection(Section):
    """A second writer process that waits, and replaces the active one."""

    enabled: bool = Field(
        default=False,
        description="Wait as a standby while another writer is active, and replace it after it has ended.",
    )
    poll_interval: PositiveSeconds = Field(
        default=POLICY.poll_interval_s,
        description="How often a standby reads the manifest, and asks the active writer at its endpoint.",
    )
    takeover_after: PositiveSeconds = Field(
        default=POLICY.takeover_after_s,
        description="An active writer without evidence of life for this long is replaced; at least three times "
        "manifest_poll_interval and poll_interval.",
    )
    unsigned_takeover_after: PositiveSeconds | None = Field(
        default=POLICY.unsigned_takeover_after_s,
        description="The same since the last change of a writer that keeps no sign of life, such as SlateDB's; "
        "none: never.",
    )
    token: PlainToken | None = Field(
        default=None,
        description="Token with which a standby asks the active writer, with the role read; default: the first one of "
        "tokens.read that is no hash.",
    )
    wal_cache_bytes: Bytes = Field(
        default=256 << 20,
        description="A standby keeps so many bytes of rows in memory that are in the WAL but not in L0, so that a "
        "takeover does not read them; 0: none.",
    )

    def policy(self) -> StandbyPolicy:
        """Return the intervals of a standby."""
        return StandbyPolicy(
            poll_interval_s=self.poll_interval,
            takeover_after_s=self.takeover_after,
            unsigned_takeover_after_s=self.unsigned_takeover_after,
        )


class WriterSettings(ServerSettings, BoundaryFilesSettings):
    """The writer: accepts writes over HTTP, makes them durable, and serves reads.  A command: writer promote."""

    ROLE: ClassVar[str] = "writer"
    FLAGS: ClassVar[tuple[str, ...]] = ("standby.enabled", "take_over")

    # Settings are frozen, so narrower sections are safe.
    http: WritesHttpSection = WritesHttpSection()  # pyright: ignore[reportIncompatibleVariableOverride]
    shutdown: WriterShutdownSection = WriterShutdownSection()  # pyright: ignore[reportIncompatibleVariableOverride]

    wal: WalSection = WalSection()
    standby: StandbySection = StandbySection()
    take_over: bool = Field(
        default=ENGINE.take_over,
        description="Fence a writer that seems to run; off: exit with 75 instead. A standby decides by itself.",
    )

    flush_interval: Seconds | None = Field(
        default=ENGINE.flush_interval_s,
        description="How long rows may wait for the WAL; a waiter after a longer pause starts a PUT at once. "
        "0 is adaptive: writes during a PUT share the next one.",
    )
    skip_memtable_bytes: Bytes | None = Field(
        default=ENGINE.skip_memtable_bytes,
        description="A commit of this size gets a WAL file of its own, so that earlier rows need not wait for it.",
    )
    manifest_poll_interval: PositiveSeconds = Field(
        default=ENGINE.manifest_poll_interval_s,
        description="How often to poll the manifest for other writers and finished compactions.",
    )
    manifest_update_timeout: PositiveSeconds = Field(
        default=ENGINE.manifest_update_timeout_s,
        description="Time limit of one manifest update, including its retries.",
    )
    l0_sst_size_bytes: Bytes = Field(
        default=ENGINE.l0_sst_size_bytes, description="A memtable of this size is frozen and flushed to L0."
    )
    max_wal_flushes_before_l0_flush: int = Field(
        default=ENGINE.max_wal_flushes_before_l0_flush,
        description="After this many WAL files the memtable is flushed whatever its size, which bounds replay.",
    )
    l0_max_ssts: int = Field(
        default=ENGINE.l0_max_ssts,
        description="With this many L0 SSTs in a segment, flushes wait for the compactor.",
    )
    l0_max_ssts_per_key: int = Field(
        default=ENGINE.l0_max_ssts_per_key,
        description="The same limit for L0 SSTs that cover one key.",
    )
    l0_flush_parallelism: int = Field(
        default=ENGINE.l0_flush_parallelism, description="L0 SSTs that are uploaded concurrently."
    )
    max_unflushed_bytes: Bytes = Field(
        default=ENGINE.max_unflushed_bytes, description="Writes wait while this many bytes are not in SSTs."
    )
    max_transaction_history_bytes: Bytes = Field(
        default=ENGINE.max_transaction_history_bytes,
        description="Limit of keys kept for conflict checks; transactions older than the history end with a conflict.",
    )
    wal_enabled: bool = Field(
        default=ENGINE.wal_enabled,
        description="Without the WAL, rows are durable only in L0, and a crash loses what was not flushed.",
    )
    compression_codec: CompressionCodec = "none"
    min_filter_keys: int = Field(default=ENGINE.min_filter_keys, description="SSTs with fewer keys get no filter.")
    default_ttl_millis: int | None = Field(
        default=ENGINE.default_ttl_ms, description="Lifetime of rows without a TTL of their own; none: no expiry."
    )
    writer_checkpoint: bool = Field(
        default=ENGINE.writer_checkpoint,
        description="Keep the SSTs that the writer serves with a checkpoint, replaced with every change. It is also "
        "the writer's sign of life: shale db info shows its host, endpoint and age.",
    )
    writer_checkpoint_lifetime: PositiveSeconds = Field(
        default=ENGINE.writer_checkpoint_lifetime_s,
        description="An idle writer replaces its checkpoint after half of this; after a crash it expires.",
    )
    writer_endpoint: SecretUrl | None = Field(
        default=None,
        description="The URL that the checkpoint tells others; default: http.host, or the host name if that is all "
        "addresses, and http.port.",
    )
    checkpoint_flush_timeout: Seconds | None = Field(
        default=ENGINE.checkpoint_flush_timeout_s,
        description="How long a full checkpoint waits for the flush, also while L0 is full, before it takes only "
        "durable rows; none: it does not wait while L0 is full.",
    )
    block_size_bytes: Bytes = Field(default=ENGINE.block_size_bytes, description="Target size of a block of an SST.")
    block_cache_bytes: Bytes = Field(
        default=DEFAULT_CAPACITY_BYTES, description="Memory for blocks, indexes and filters."
    )
    max_key_bytes: Bytes = Field(default=ENGINE.max_key_bytes, description="Longer keys are rejected.")
    wal_stall_limit: PositiveSeconds = Field(
        default=ENGINE.wal_stall_limit_s,
        description="After a pause this long the writer checks first whether it is fenced; below every min_age.",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "WriterSettings":
        validate_options(self.options, self.merge_operator)
        _validate_standby(self.standby, self.manifest_poll_interval, has_sign=self.writer_checkpoint)
        return self

    def standby_token(self) -> str | None:
        """Return the token with which a standby asks the active writer, which has the same settings.

        Its address comes from the manifest, so a token that may write is sent only if it is set for this.
        """
        own = self.standby.token
        tokens = self.tokens.read if own is None else (own,)
        return next((text for each in tokens if not is_token_hash(text := each.get_secret_value())), None)

    def options(self) -> DbOptions:
        """Return the options of the engine.

        Raises:
            InvalidRequestError: settings are out of range or contradict each other.
        """
        return options_from(
            DbOptions,
            self,
            compression=Compression[self.compression_codec.upper()],
            default_ttl_ms=self.default_ttl_millis,
            wal_flush_bytes=self.wal.flush_bytes,
            wal_epoch_metadata=self.wal.epoch_metadata,
            max_parallel_writes=self.wal.max_parallel_writes,
            wal_ack=self.wal.ack,
            writer_endpoint=url_text(self.writer_endpoint),
            compactor=False,
            gc=False,
            **self.engine_values(),
        )

    def engine_shares(self) -> tuple[MemoryShare, ...]:
        """Return the settings that bound memtables, caches and the history of transactions."""
        return (*_MEMORY, *((_STANDBY,) if self.standby.enabled else ()))

    def needs_conditional_update(self) -> bool:
        """Only boundary files are updated in place."""
        return self.boundary_files_enabled

    def writes_to_wal(self) -> bool:
        """A writer without a WAL also claims a WAL id, so that it fences older writers."""
        return True

    def close_flush(self) -> FlushType:
        """Return what to flush at a stop."""
        return FlushType(self.shutdown.flush)


def _validate_standby(standby: StandbySection, manifest_poll_interval_s: float, *, has_sign: bool) -> None:
    """Raise ``ValueError`` if a standby could not tell a live writer from a dead one."""
    if not standby.enabled:
        return
    if not has_sign:
        raise ValueError("standby.enabled needs writer_checkpoint: the sign of life of the active writer")
    longest_s = 3 * max(manifest_poll_interval_s, standby.poll_interval)
    if standby.takeover_after < longest_s:
        raise ValueError(
            f"standby.takeover_after must be at least {longest_s:g} s, three times the longer one of "
            "manifest_poll_interval and standby.poll_interval"
        )
