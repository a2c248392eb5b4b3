"""The writer's options: plain frozen values, with the defaults of docs/protocol.md, Appendix A."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from shale.engine.disk_cache_setting import parse_disk_cache
from shale.engine.settings_values import parse_duration_ms, parse_duration_s, parse_size
from shale.errors import InvalidRequestError
from shale.format.bloom import BloomPolicy, PrefixExtractor
from shale.iter.merge_operator import MergeOperator
from shale.sst.budget import MemoryBudget
from shale.sst.disk_cache import DiskCacheOptions
from shale.types import Compression, KeyRange

MIB = 1 << 20
MIN_WAL_FLUSHES_BEFORE_L0 = 4096
MAX_VALUE_BYTES = (1 << 32) - 1


class FlushType(StrEnum):
    """How far ``flush`` and ``close`` bring what was written."""

    MEMTABLE = "memtable"
    WAL = "wal"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class DbOptions:
    """Everything a writer can be told.  Durations are seconds, sizes bytes of estimated encoding.

    ``flush_interval_s``: how long rows may wait for the WAL; 0 is adaptive (the first waiter starts a PUT, whoever
    arrives while it is in flight shares the next one); ``None`` means explicit flushes only.
    ``block_cache_bytes``: memory of its own for blocks, indexes and filters; ``None``: what the process has for all
    its databases (``shale.configure``).  ``cache``: memory that it shares with others, in place of that.
    ``disk_cache``: where parts of SSTs are kept besides; ``None``: as configured for the process.
    ``segment_extractor``: gives every key the prefix whose tree it goes to; a database keeps the one it was made with.
    ``max_transaction_history_bytes``: of keys that were written and flushed since the oldest open transaction began;
    beyond that it is lost.
    ``writer_checkpoint``: keep the SSTs that this writer serves under a checkpoint of its own, named ``writer:`` and
    its epoch.  ``checkpoint_flush_timeout_s``: how long a checkpoint of everything waits for the flush before it takes
    what is durable; ``None``: for ever.
    ``merge_operator``: a callable, or a name (``shale.merge_operators``).
    ``enforce_visible_range``: writes must lie inside, and no read wholly outside; for the owner of one shard.
    """

    flush_interval_s: float | None = 0.1
    manifest_poll_interval_s: float = 1.0
    manifest_update_timeout_s: float = 300.0
    l0_sst_size_bytes: int = 64 * MIB
    max_wal_flushes_before_l0_flush: int = MIN_WAL_FLUSHES_BEFORE_L0
    l0_max_ssts: int = 8
    l0_max_ssts_per_key: int = 8
    l0_flush_parallelism: int = 4
    max_unflushed_bytes: int = 1024 * MIB
    max_transaction_history_bytes: int = 64 * MIB
    wal_enabled: bool = True
    wal_stall_limit_s: float = 60.0
    probe_max_staleness_s: float = 60.0
    missing_boundary: str = "panic"
    boundary_files_enabled: bool = True
    compression: Compression = Compression.NONE
    block_size_bytes: int = 4096
    min_filter_keys: int = 1000
    filter_policies: tuple[BloomPolicy, ...] | None = None
    merge_operator: MergeOperator | str | None = None
    segment_extractor: PrefixExtractor | None = None
    default_ttl_ms: int | None = None
    writer_checkpoint: bool = False
    checkpoint_flush_timeout_s: float | None = None
    max_key_bytes: int = 65_535
    block_cache_bytes: int | None = None
    cache: MemoryBudget | None = None
    disk_cache: DiskCacheOptions | None = None
    create_if_missing: bool = True
    enforce_visible_range: KeyRange | None = None

    def __post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise InvalidRequestError("; ".join(problems))

    @classmethod
    def from_keywords(cls, keywords: Mapping[str, Any]) -> Self:
        """Build options from the keyword arguments of ``Db.open``: durations and sizes as people write them.

        ``flush_interval="250ms"`` sets ``flush_interval_s``; sizes and the rest keep their names.

        Raises:
            InvalidRequestError: an unknown name or an impossible value; names the option.
        """
        known = {field.name for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in keywords.items():
            field_name, parsed = _parse(name, value, known)
            if field_name in values:
                raise InvalidRequestError(f"{name}: given twice")
            values[field_name] = parsed
        return cls(**values)


def _parse(name: str, value: Any, known: set[str]) -> tuple[str, Any]:
    if f"{name}_s" in known:
        return f"{name}_s", None if value is None else parse_duration_s(value, name=name)
    if f"{name}_ms" in known:
        return f"{name}_ms", None if value is None else parse_duration_ms(value, name=name)
    if name not in known:
        raise InvalidRequestError(f"{name}: no such option")
    if name.endswith("_bytes") and value is not None:
        return name, parse_size(value, name=name)
    if name == "compression":
        return name, _compression(value)
    if name == "disk_cache":
        return name, parse_disk_cache(value)
    if name == "filter_policies" and value is not None:
        return name, tuple(value)
    return name, value


def _compression(value: Compression | str | None) -> Compression:
    if value is None:
        return Compression.NONE
    if isinstance(value, Compression):
        return value
    try:
        return Compression[str(value).upper()]
    except KeyError:
        raise InvalidRequestError(f"compression: {value!r} is none of none, snappy, zlib, lz4, zstd") from None


def _problems(options: DbOptions) -> Sequence[str]:
    rules = (
        (options.l0_flush_parallelism >= 1, "l0_flush_parallelism must be at least 1"),
        (
            options.max_wal_flushes_before_l0_flush >= MIN_WAL_FLUSHES_BEFORE_L0,
            f"max_wal_flushes_before_l0_flush must be at least {MIN_WAL_FLUSHES_BEFORE_L0}",
        ),
        (
            options.max_unflushed_bytes > options.l0_sst_size_bytes,
            "max_unflushed_bytes must be greater than l0_sst_size_bytes",
        ),
        (options.max_transaction_history_bytes >= 0, "max_transaction_history_bytes must be at least 0"),
        (options.l0_sst_size_bytes >= 1, "l0_sst_size_bytes must be at least 1"),
        (options.min_filter_keys >= 0, "min_filter_keys must be at least 0"),
        (options.l0_max_ssts >= 1, "l0_max_ssts must be at least 1"),
        (options.l0_max_ssts_per_key >= 1, "l0_max_ssts_per_key must be at least 1"),
        (options.manifest_poll_interval_s > 0, "manifest_poll_interval must be greater than 0"),
        (options.manifest_update_timeout_s > 0, "manifest_update_timeout must be greater than 0"),
        (
            options.checkpoint_flush_timeout_s is None or options.checkpoint_flush_timeout_s >= 0,
            "checkpoint_flush_timeout must be at least 0",
        ),
        (options.wal_stall_limit_s > 0, "wal_stall_limit must be greater than 0"),
        (1 <= options.max_key_bytes <= MAX_VALUE_BYTES, "max_key_bytes must be between 1 and 4294967295"),
        (
            options.default_ttl_ms is None or 0 <= options.default_ttl_ms < 1 << 62,
            "default_ttl must be at least 0 and not longer than time itself",
        ),
        (options.missing_boundary in ("panic", "zero"), "missing_boundary must be panic or zero"),
        (1 <= options.block_size_bytes <= 65_536, "block_size_bytes must be between 1 and 65536"),
    )
    return [problem for holds, problem in rules if not holds]
