"""The records of manifests and compactions."""

from dataclasses import dataclass

from shale.compat.slatedb.types.enums import CompactionSpec, CompactionStatus, CompressionCodec, FilterFormat, SstType
from shale.compat.slatedb.types.records import KeyRange


@dataclass(kw_only=True)
class Checkpoint:
    """A checkpoint; times are seconds since 1970."""

    id: str
    manifest_id: int
    expire_time_secs: int | None
    create_time_secs: int
    name: str | None


@dataclass(kw_only=True)
class CheckpointCreateResult:
    """A new checkpoint."""

    id: str
    manifest_id: int


@dataclass(kw_only=True)
class SsTableId:
    """The ULID of an SST, as text."""

    value: str


@dataclass(kw_only=True)
class SsTableInfo:
    """The footer of an SST."""

    first_entry: bytes | None
    last_entry: bytes | None
    index_offset: int
    index_len: int
    filter_offset: int
    filter_len: int
    compression_codec: CompressionCodec | None
    sst_type: SstType
    stats_offset: int
    stats_len: int
    filter_format: FilterFormat


@dataclass(kw_only=True)
class SsTableHandle:
    """A physical SST."""

    id: SsTableId
    info: SsTableInfo
    estimated_size_bytes: int


@dataclass(kw_only=True)
class SsTableView:
    """A view of an SST, limited to a range."""

    id: str
    sst: SsTableHandle
    visible_range: KeyRange | None
    estimated_size_bytes: int


@dataclass(kw_only=True)
class SortedRun:
    """SSTs in key order."""

    id: int
    sst_views: list[SsTableView]
    estimated_size_bytes: int


@dataclass(kw_only=True)
class Segment:
    """The tree of all keys with one prefix."""

    prefix: bytes
    last_compacted_l0_sst_view_id: str | None
    l0: list[SsTableView]
    compacted: list[SortedRun]


@dataclass(kw_only=True)
class ExternalDb:
    """Another database whose SSTs this one uses."""

    path: str
    source_checkpoint_id: str
    final_checkpoint_id: str | None
    sst_ids: list[SsTableId]


@dataclass(kw_only=True)
class VersionedManifest:
    """A version of the manifest."""

    id: int
    writer_epoch: int
    compactor_epoch: int
    external_dbs: list[ExternalDb]
    initialized: bool
    last_compacted_l0_sst_view_id: str | None
    last_compacted_l0_sst_id: str | None
    l0: list[SsTableView]
    compacted: list[SortedRun]
    segments: list[Segment]
    next_wal_sst_id: int
    replay_after_wal_id: int
    last_l0_clock_tick: int
    last_l0_seq: int
    recent_snapshot_min_seq: int
    checkpoints: list[Checkpoint]
    wal_object_store_uri: str | None


@dataclass(kw_only=True)
class Compaction:
    """One compaction."""

    id: str
    spec: CompactionSpec
    bytes_processed: int
    status: CompactionStatus
    output_ssts: list[SsTableHandle]
    active: bool


@dataclass(kw_only=True)
class VersionedCompactions:
    """A version of the compactions file."""

    id: int
    compactor_epoch: int
    recent_compactions: list[Compaction]


@dataclass(kw_only=True)
class CompactorStateView:
    """The state that a compactor reads."""

    compactions: VersionedCompactions | None
    manifest: VersionedManifest
