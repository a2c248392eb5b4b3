"""The option records of the binding."""

from dataclasses import dataclass

from shale.compat.slatedb.types.enums import DurabilityLevel, FilterContext, FlushType, IterationOrder, Ttl
from shale.compat.slatedb.types.records import KeyRange


@dataclass(kw_only=True)
class BloomFilterOptions:
    """The content of a Bloom filter."""

    bits_per_key: int
    whole_key_filtering: bool = True


@dataclass(kw_only=True)
class CheckpointOptions:
    """Options of a new checkpoint; ``source`` is the id of a checkpoint whose state it shares."""

    lifetime_ms: int | None
    source: str | None
    name: str | None


@dataclass(kw_only=True)
class CloneSourceSpec:
    """A source database of a clone."""

    path: str
    checkpoint: str | None
    projection_range: KeyRange | None


@dataclass(kw_only=True)
class CloseOptions:
    """What to flush before closing; ``None``: nothing."""

    flush_type: FlushType | None


@dataclass(kw_only=True)
class FlushOptions:
    """What to flush."""

    flush_type: FlushType


@dataclass(kw_only=True)
class FoyerCacheOptions:
    """A cache in memory; ``shards`` has no meaning here."""

    max_capacity: int
    shards: int


@dataclass(kw_only=True)
class MokaCacheOptions:
    """A cache in memory; the two times have no meaning here."""

    max_capacity: int
    time_to_live: int | None
    time_to_idle: int | None


@dataclass(kw_only=True)
class GarbageCollectorDirectoryOptions:
    """One task of the collector."""

    interval_ms: int | None = None
    min_age_ms: int
    dry_run: bool


@dataclass(kw_only=True)
class GarbageCollectorScheduleOptions:
    """One task of the collector without a minimum age."""

    interval_ms: int | None = None


@dataclass(kw_only=True)
class GarbageCollectorOptions:
    """The tasks of the collector; those that are ``None`` are off."""

    manifest_options: GarbageCollectorDirectoryOptions | None = None
    wal_options: GarbageCollectorDirectoryOptions | None = None
    wal_fence_options: GarbageCollectorDirectoryOptions | None = None
    compacted_options: GarbageCollectorDirectoryOptions | None = None
    compactions_options: GarbageCollectorDirectoryOptions | None = None
    detach_options: GarbageCollectorScheduleOptions | None = None
    disable_boundary_files: bool = False
    object_store_max_retries: int | None = None


@dataclass(kw_only=True)
class TracingOptions:
    """The name of a trace; it has no meaning here."""

    trace_id: str


@dataclass(kw_only=True)
class ReadOptions:
    """Options of a lookup."""

    durability_filter: DurabilityLevel
    dirty: bool
    cache_blocks: bool
    filter_context: FilterContext | None = None
    tracing_options: TracingOptions | None = None


@dataclass(kw_only=True)
class ScanOptions:
    """Options of a scan."""

    durability_filter: DurabilityLevel
    dirty: bool
    read_ahead_bytes: int
    cache_blocks: bool
    max_fetch_tasks: int
    order: IterationOrder | None = None
    filter_context: FilterContext | None = None
    tracing_options: TracingOptions | None = None


@dataclass(kw_only=True)
class ReaderOptions:
    """Options of a reader."""

    manifest_poll_interval_ms: int
    checkpoint_lifetime_ms: int
    max_memtable_bytes: int
    skip_wal_replay: bool
    object_store_max_retries: int | None = None


@dataclass(kw_only=True)
class PutOptions:
    """Options of a put."""

    ttl: Ttl


@dataclass(kw_only=True)
class MergeOptions:
    """Options of a merge."""

    ttl: Ttl


@dataclass(kw_only=True)
class WriteOptions:
    """Options of a commit: its sequence number, or 0 for the next one."""

    seqnum: int = 0


@dataclass(kw_only=True)
class SlateDbWalReaderOptions:
    """Limits on what a WAL reader may fetch ahead; all must be positive."""

    max_buffered_bytes: int = 134_217_728
    max_fetch_tasks: int = 128
    read_ahead_bytes: int = 4_194_304
