"""What a reader can be told (docs/protocol.md 5.1)."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self
from uuid import UUID

from shale.engine.disk_cache_setting import parse_disk_cache
from shale.engine.settings_values import parse_duration_s, parse_size
from shale.errors import (
    CheckpointLifetimeTooShort,
    InvalidCheckpointLifetime,
    InvalidManifestPollInterval,
    InvalidRequestError,
)
from shale.format.bloom import BloomPolicy, PrefixExtractor
from shale.iter.merge_operator import MergeOperator
from shale.protocol.checkpoint_names import checkpoint_reference
from shale.sst.budget import MemoryBudget
from shale.sst.disk_cache import DiskCacheOptions
from shale.sst.source import READ_AHEAD_BYTES
from shale.types import KeyRange

_LIFETIME_MIN_S = 1.0


class ReaderMode(StrEnum):
    """What a reader follows, and what protects it."""

    MANAGED = "managed"
    CHECKPOINT = "checkpoint"
    FOLLOW_LATEST = "follow_latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """Durations are seconds.

    ``checkpoint``, an id or a name, pins the reader to it; ``follow_latest`` follows without protection and writes
    nothing; without either the reader manages a checkpoint of its own, which lives for ``checkpoint_lifetime_s`` and
    is renewed.
    ``block_cache_bytes``: memory of its own for blocks, indexes and filters; ``None``: what the process has for all.
    ``cache``: memory that it shares with others, in place of that.
    ``merge_operator``: a callable, or a name (``shale.merge_operators``).
    ``disk_cache``: where parts of SSTs are kept besides; ``None``: as configured for the process.
    ``segment_extractor`` is only compared with the name in the manifest: reading routes by the prefixes found there.
    ``enforce_visible_range``: no read may lie wholly outside; for the owner of one shard.
    """

    checkpoint: UUID | str | None = None
    follow_latest: bool = False
    manifest_poll_interval_s: float = 10.0
    checkpoint_lifetime_s: float = 600.0
    max_memtable_bytes: int = 64 * 1024 * 1024
    skip_wal_replay: bool = False
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
        if self.checkpoint is not None:
            checkpoint_reference(self.checkpoint)
        if self.checkpoint is not None and self.follow_latest:
            raise InvalidRequestError("a reader follows the latest state or reads a checkpoint, not both")
        if self.manifest_poll_interval_s <= 0:
            raise InvalidManifestPollInterval("manifest_poll_interval must be greater than 0")
        if self.max_memtable_bytes < 1 or self.read_ahead_bytes < 1:
            raise InvalidRequestError("max_memtable_bytes and read_ahead_bytes must be greater than 0")
        if self.mode is ReaderMode.MANAGED:
            if self.checkpoint_lifetime_s < _LIFETIME_MIN_S:
                raise InvalidCheckpointLifetime("checkpoint_lifetime must be at least 1s")
            if self.checkpoint_lifetime_s < 2 * self.manifest_poll_interval_s:
                raise CheckpointLifetimeTooShort("checkpoint_lifetime must be at least twice manifest_poll_interval")

    @property
    def mode(self) -> ReaderMode:
        """What the two fields for it come to."""
        if self.checkpoint is not None:
            return ReaderMode.CHECKPOINT
        return ReaderMode.FOLLOW_LATEST if self.follow_latest else ReaderMode.MANAGED

    @property
    def lifetime_ms(self) -> int:
        """``checkpoint_lifetime_s`` as checkpoints count."""
        return round(self.checkpoint_lifetime_s * 1000)

    @classmethod
    def from_keywords(cls, keywords: Mapping[str, Any]) -> Self:
        """Build options from keyword arguments: durations and sizes as people write them, without the unit's suffix.

        Raises:
            InvalidRequestError: an unknown name or an impossible value; names the option.
        """
        known = {field.name for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in keywords.items():
            if f"{name}_s" in known:
                values[f"{name}_s"] = parse_duration_s(value, name=name)
            elif name not in known:
                raise InvalidRequestError(f"{name}: no such option of a reader")
            elif name.endswith("_bytes") and value is not None:
                values[name] = parse_size(value, name=name)
            elif name == "disk_cache":
                values[name] = parse_disk_cache(value)
            elif name == "filter_policies" and value is not None:
                values[name] = tuple(value)
            else:
                values[name] = value
        return cls(**values)
