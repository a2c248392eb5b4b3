"""The options of a reader (docs/reference/protocol.md 5.1)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self
from uuid import UUID

from shale.concurrency.read_ahead import READ_AHEAD_BYTES
from shale.core.lazy_dataclass import dataclass
from shale.core.suggestions import KnownFields
from shale.engine.open_options import READER_NAMES, option_values, require_parts
from shale.errors import (
    CheckpointLifetimeTooShort,
    InvalidCheckpointLifetime,
    InvalidManifestPollInterval,
    InvalidRequestError,
)
from shale.format.sst.filter_policy import BloomPolicy, PrefixExtractor
from shale.iter.merge_operator import MergeOperator
from shale.protocol.checkpoints import require_checkpoint_reference
from shale.protocol.options import ProtocolOptions
from shale.sst.budget import MemoryBudget
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.types import KeyRange, ManifestVersion

_LIFETIME_MIN_S = 1.0


class ReaderMode(StrEnum):
    """Which state a reader follows, and what protects it."""

    MANAGED = "managed"
    CHECKPOINT = "checkpoint"
    FOLLOW_LATEST = "follow_latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions(KnownFields):
    """The options of a reader; durations are seconds.

    Args:
        checkpoint: id or name of the checkpoint to read.
        follow_latest: follow without protection and write nothing.  Without this and ``checkpoint`` the reader manages
            a checkpoint of its own, which lives for ``checkpoint_lifetime_s`` and is renewed.
        checkpoint_lifetime_s: more than twice ``manifest_poll_interval_s``; ``None``: the checkpoint never expires, so
            it must be deleted by hand after a crash of the reader.
        block_cache_bytes: cache of its own for blocks, indexes and filters; ``None``: the cache of the process.
        cache: a memory budget shared with others, instead.
        max_replayed_bytes: rows of the WAL in memory, with those that only snapshots and scans still read; with more,
            an older state is served until they are in L0.  A reader at a checkpoint replays all.  ``None``: no limit.
        merge_operator: a callable, or a name (``shale.merge_operators``).
        disk_cache: directory that caches parts of SSTs; ``None``: the setting of the process.
        allow_wal_gap: if WAL files that replay needs are lost, serve the rows of all others instead of refusing;
            ``wal_gaps`` names what is left out.
        segment_extractor: its name must equal the one in the manifest; reads route by the prefixes of the manifest.
        enforce_visible_range: a read wholly outside is refused; by default the range of a projected clone, and
            ``EVERYTHING`` overrides it.
    """

    checkpoint: UUID | str | None = None
    follow_latest: bool = False
    manifest_poll_interval_s: float = 10.0
    checkpoint_lifetime_s: float | None = 600.0
    max_memtable_bytes: int = 64 * 1024 * 1024
    max_replayed_bytes: int | None = None
    skip_wal_replay: bool = False
    allow_wal_gap: bool = False
    defer_checkpoint_release: bool = True
    merge_operator: MergeOperator | str | None = None
    filter_policies: tuple[BloomPolicy, ...] = (BloomPolicy(),)
    segment_extractor: PrefixExtractor | None = None
    block_cache_bytes: int | None = None
    cache: MemoryBudget | None = None
    disk_cache: DiskCacheOptions | None = None
    read_ahead_bytes: int = READ_AHEAD_BYTES
    probe_max_staleness_s: float = 60.0
    enforce_visible_range: KeyRange | None = None

    def __post_init__(self) -> None:
        require_parts(self.merge_operator, self.segment_extractor, self.cache)
        if self.checkpoint is not None:
            require_checkpoint_reference(self.checkpoint)
        if self.max_replayed_bytes is not None and self.max_replayed_bytes < 1:
            raise InvalidRequestError("max_replayed_bytes must be greater than 0")
        if self.checkpoint is not None and self.follow_latest:
            raise InvalidRequestError("a reader follows the latest state or reads a checkpoint, not both")
        if self.manifest_poll_interval_s <= 0:
            raise InvalidManifestPollInterval("manifest_poll_interval must be greater than 0")
        if self.max_memtable_bytes < 1 or self.read_ahead_bytes < 1:
            raise InvalidRequestError("max_memtable_bytes and read_ahead_bytes must be greater than 0")
        if self.mode is ReaderMode.MANAGED and self.checkpoint_lifetime_s is not None:
            if self.checkpoint_lifetime_s < _LIFETIME_MIN_S:
                raise InvalidCheckpointLifetime("checkpoint_lifetime must be at least 1s")
            if self.checkpoint_lifetime_s <= 2 * self.manifest_poll_interval_s:
                raise CheckpointLifetimeTooShort("checkpoint_lifetime must be more than twice manifest_poll_interval")

    @property
    def mode(self) -> ReaderMode:
        """The mode that ``checkpoint`` and ``follow_latest`` select."""
        if self.checkpoint is not None:
            return ReaderMode.CHECKPOINT
        return ReaderMode.FOLLOW_LATEST if self.follow_latest else ReaderMode.MANAGED

    @property
    def lifetime_ms(self) -> int | None:
        """``checkpoint_lifetime_s`` in milliseconds."""
        return None if self.checkpoint_lifetime_s is None else round(self.checkpoint_lifetime_s * 1000)

    def protocol(self, manifest_write_version: ManifestVersion) -> ProtocolOptions:
        """Return the options for manifests; a reader writes some for its own checkpoint."""
        return ProtocolOptions(
            component="reader",
            probe_max_staleness_s=self.probe_max_staleness_s,
            manifest_write_version=manifest_write_version,
        )

    @classmethod
    def from_keywords(cls, keywords: Mapping[str, Any]) -> Self:
        """Build options from keyword arguments; durations and sizes may be text, and their names have no unit.

        Raises:
            UnknownOption: there is no option of that name.
            InvalidRequestError: an impossible value; the message names the option.
        """
        return cls(**option_values(cls, READER_NAMES, keywords))
