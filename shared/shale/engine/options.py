"""The writer's options: plain frozen values, with the defaults of docs/reference/protocol.md, Appendix A."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Self

from shale.core.lazy_dataclass import dataclass
from shale.core.suggestions import KnownFields, invalid_choice
from shale.engine.open_options import DB_NAMES, option_values, require_parts
from shale.errors import InvalidRequestError
from shale.format.sst.filter_policy import BloomPolicy, PrefixExtractor
from shale.iter.merge_operator import MergeOperator
from shale.sst.budget import MemoryBudget
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.types import Compression, KeyRange

MIB = 1 << 20
MIN_WAL_FLUSHES_BEFORE_L0 = 4096
MAX_PARALLEL_WRITES = 64
MAX_VALUE_BYTES = (1 << 32) - 1


class FlushType(StrEnum):
    """The target of ``flush`` and ``close``: L0, the WAL, or no flush."""

    MEMTABLE = "memtable"
    WAL = "wal"
    NONE = "none"

    @classmethod
    def of(cls, value: "FlushType | str") -> "FlushType":
        """Parse a caller's value.

        Raises:
            InvalidRequestError: not ``memtable``, ``wal`` or ``none``.
        """
        try:
            return cls(value)
        except ValueError:
            raise invalid_choice("flush", value, list(cls)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class DbOptions(KnownFields):
    """All options of a writer.  Durations are seconds; sizes are bytes of estimated encoding.

    ``flush_interval_s``: how long rows may wait for the WAL, and the least time between two of its PUTs; a waiter after
    a longer pause starts a PUT at once.  0 is adaptive: every first waiter starts a PUT, and rows written during the
    PUT share the next one.  ``None``: only explicit flushes.
    ``wal_flush_bytes``: a WAL file is closed at this size, but no commit is split; ``None``: ``l0_sst_size_bytes``.
    ``wal_epoch_metadata``: WAL files carry the epoch of their writer as metadata, where the store keeps metadata.
    ``skip_memtable_bytes``: a commit of this size gets a WAL file of its own, which is written at once; ``None``: none.
    ``block_cache_bytes``: a cache of its own for blocks, indexes and filters; ``None``: the process's shared cache
    (``shale.configure``).  ``cache``: a memory budget shared with other handles, instead of both.
    ``disk_cache``: a directory for parts of SSTs; ``None``: as configured for the process.
    ``segment_extractor``: maps every key to the prefix of its tree; fixed when the database is created.
    ``max_transaction_history_bytes``: bound of the written keys that are kept for the conflict checks of open
    transactions; a transaction that needs more cannot commit.
    ``writer_checkpoint``: keep the served SSTs with a checkpoint named ``writer:`` and the epoch, which is also the
    sign of life of this writer.  ``writer_checkpoint_lifetime_s``: it is renewed after half of this, also by an idle
    writer; after a crash it keeps garbage for so long; at least four polls.  ``writer_endpoint``: the URL that it
    tells others.
    ``checkpoint_flush_timeout_s``: how long a checkpoint of all rows waits for the flush, also while L0 is full; after
    that it includes only durable rows.  ``None``: as long as the flush can go on; while L0 is full, or while the store
    does not answer, the checkpoint includes what is in the WAL.
    ``stall_timeout_s``: how long a write may wait for memory before it raises ``WriteStalled``; ``None``: for ever.
    ``max_parallel_writes``: WAL files that are written at the same time; fixed when the database is created; ``None``:
    as it is, 1 for a new one.  SlateDB refuses a database with more than 1.
    ``wal_ack``: with more than 1, a row is durable once all older rows are, too (``contiguous``), or once its own WAL
    file is written, although an older one may still fail (``as_landed``).
    ``compactor``, ``gc``: run a compactor and a collector in this process, while no other compactor is seen; ``None``:
    as configured for the process, which is to run them.  ``max_background_jobs``: compactions at the same time, and
    threads for them.
    ``merge_operator``: a callable, or a name (``shale.merge_operators``).
    ``take_over``: fence a writer that seems to be alive; off: raise ``LiveWriter``, which tells who it is.
    ``enforce_visible_range``: writes outside and reads wholly outside are refused; by default the range of a projected
    clone, and ``EVERYTHING`` overrides it.
    """

    flush_interval_s: float | None = 0.1
    wal_flush_bytes: int | None = None
    skip_memtable_bytes: int | None = None
    manifest_poll_interval_s: float = 1.0
    manifest_update_timeout_s: float = 300.0
    l0_sst_size_bytes: int = 64 * MIB
    max_wal_flushes_before_l0_flush: int = MIN_WAL_FLUSHES_BEFORE_L0
    l0_max_ssts: int = 8
    l0_max_ssts_per_key: int = 8
    l0_flush_parallelism: int = 4
    max_unflushed_bytes: int = 1024 * MIB
    stall_timeout_s: float | None = None
    max_transaction_history_bytes: int = 64 * MIB
    wal_enabled: bool = True
    wal_epoch_metadata: bool = True
    max_parallel_writes: int | None = None
    wal_ack: str = "contiguous"
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
    writer_checkpoint: bool = True
    writer_checkpoint_lifetime_s: float = 900.0
    writer_endpoint: str | None = None
    checkpoint_flush_timeout_s: float | None = None
    max_key_bytes: int = 65_535
    block_cache_bytes: int | None = None
    cache: MemoryBudget | None = None
    disk_cache: DiskCacheOptions | None = None
    compactor: bool | None = None
    gc: bool | None = None
    max_background_jobs: int = 1
    create_if_missing: bool = True
    take_over: bool = True
    enforce_visible_range: KeyRange | None = None

    def __post_init__(self) -> None:
        require_parts(self.merge_operator, self.segment_extractor, self.cache)
        problems = list(_problems(self))
        if problems:
            raise InvalidRequestError("; ".join(problems))

    @classmethod
    def from_keywords(cls, keywords: Mapping[str, Any]) -> Self:
        """Build options from the keyword arguments of ``Db.open``.

        ``flush_interval="250ms"`` sets ``flush_interval_s``; other options keep their names.

        Raises:
            UnknownOption: there is no option of that name.
            InvalidRequestError: an impossible value; the message names the option.
        """
        return cls(**option_values(cls, DB_NAMES, keywords))

    def resolve_merge_operator(self) -> MergeOperator | None:
        """Return the merge operator, wrapped so that its errors name it and the key."""
        if self.merge_operator is None:
            return None
        from shale.merge_operators import resolve_operator

        return resolve_operator(self.merge_operator)


def _is_count(value: object, most: int) -> bool:
    """Return whether a value is an integer from 1 to ``most``; not 4.0: the manifest holds it as it was given."""
    return isinstance(value, int) and 1 <= value <= most


def _problems(options: DbOptions) -> Sequence[str]:
    rules = (
        (options.stall_timeout_s is None or options.stall_timeout_s >= 0, "stall_timeout must be at least 0"),
        (options.max_background_jobs >= 1, "max_background_jobs must be at least 1"),
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
        (options.wal_flush_bytes is None or options.wal_flush_bytes >= 1, "wal_flush_bytes must be at least 1"),
        (
            options.skip_memtable_bytes is None or options.skip_memtable_bytes >= 1,
            "skip_memtable_bytes must be at least 1",
        ),
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
        (options.writer_checkpoint_lifetime_s >= 1, "writer_checkpoint_lifetime must be at least 1s"),
        (
            options.max_parallel_writes is None or _is_count(options.max_parallel_writes, MAX_PARALLEL_WRITES),
            f"max_parallel_writes must be between 1 and {MAX_PARALLEL_WRITES}",
        ),
        (options.wal_ack in ("contiguous", "as_landed"), "wal_ack must be contiguous or as_landed"),
        (options.wal_stall_limit_s > 0, "wal_stall_limit must be greater than 0"),
        (1 <= options.max_key_bytes <= MAX_VALUE_BYTES, "max_key_bytes must be between 1 and 4294967295"),
        (
            options.default_ttl_ms is None or 0 <= options.default_ttl_ms < 1 << 62,
            "default_ttl must be at least 0 and below 2**62 ms",
        ),
        (options.missing_boundary in ("panic", "zero"), "missing_boundary must be panic or zero"),
        (1 <= options.block_size_bytes <= 65_536, "block_size_bytes must be between 1 and 65536"),
    )
    return [problem for holds, problem in rules if not holds]
