"""The tables of the wire schema, fields in slot order (docs/format.md 4, 5, 10, 11 and 12; schemas/*.fbs).

A union takes two slots: its discriminant and its value.
"""

from shale.format.flat_layout import Kind, Layout

_I8, _U8, _BOOL, _U16, _U32, _U64, _I64 = (
    Kind.I8,
    Kind.U8,
    Kind.BOOL,
    Kind.U16,
    Kind.U32,
    Kind.U64,
    Kind.I64,
)
_REF = Kind.OFFSET

ULID = Layout("Ulid", (("high", _U64), ("low", _U64)))
UUID = Layout("Uuid", (("high", _U64), ("low", _U64)))
BYTES_BOUND = Layout("BytesBound", (("key", _REF), ("bound_type", _I8)))
BYTES_RANGE = Layout("BytesRange", (("start_bound", _REF), ("end_bound", _REF)))

SST_INFO = Layout(
    "SsTableInfo",
    (
        ("first_entry", _REF),
        ("index_offset", _U64),
        ("index_len", _U64),
        ("filter_offset", _U64),
        ("filter_len", _U64),
        ("compression_format", _I8),
        ("sst_type", _I8),
        ("last_entry", _REF),
        ("stats_offset", _U64),
        ("stats_len", _U64),
        ("filter_format", _I8),
    ),
)
BLOCK_META = Layout("BlockMeta", (("offset", _U64), ("first_key", _REF)))
SST_INDEX = Layout("SsTableIndex", (("block_meta", _REF),))
BLOCK_STATS = Layout("BlockStats", (("num_puts", _U16), ("num_deletes", _U16), ("num_merges", _U16)))
SST_STATS = Layout(
    "SstStats",
    (
        ("num_puts", _U64),
        ("num_deletes", _U64),
        ("num_merges", _U64),
        ("raw_key_size", _U64),
        ("raw_val_size", _U64),
        ("block_stats", _REF),
    ),
)

COMPACTED_SST = Layout(
    "CompactedSsTable",
    (("id", _REF), ("info", _REF), ("visible_range", _REF), ("format_version", Kind.NULLABLE_U16)),
)
COMPACTED_SST_V2 = Layout(
    "CompactedSsTableV2",
    (("id", _REF), ("info", _REF), ("format_version", Kind.NULLABLE_U16)),
)
SST_VIEW = Layout("CompactedSsTableView", (("id", _REF), ("sst_id", _REF), ("visible_range", _REF)))
SORTED_RUN = Layout("SortedRun", (("id", _U32), ("ssts", _REF)))
SORTED_RUN_V2 = Layout("SortedRunV2", (("id", _U32), ("ssts", _REF)))
SEGMENT = Layout(
    "Segment",
    (("prefix", _REF), ("last_compacted_l0_sst_view_id", _REF), ("l0", _REF), ("compacted", _REF)),
)
WRITER_CHECKPOINT = Layout("WriterCheckpoint", (("epoch", _U64),))
CHECKPOINT = Layout(
    "Checkpoint",
    (
        ("id", _REF),
        ("manifest_id", _U64),
        ("checkpoint_expire_time_s", _U32),
        ("checkpoint_create_time_s", _U32),
        ("metadata_type", _U8),
        ("metadata", _REF),
        ("name", _REF),
    ),
)
EXTERNAL_DB = Layout(
    "ExternalDb",
    (("path", _REF), ("source_checkpoint_id", _REF), ("final_checkpoint_id", _REF), ("sst_ids", _REF)),
)
MANIFEST_V1 = Layout(
    "ManifestV1",
    (
        ("manifest_id", _U64),
        ("external_dbs", _REF),
        ("initialized", _BOOL),
        ("writer_epoch", _U64),
        ("compactor_epoch", _U64),
        ("replay_after_wal_id", _U64),
        ("wal_id_last_seen", _U64),
        ("l0_last_compacted", _REF),
        ("l0", _REF),
        ("compacted", _REF),
        ("last_l0_clock_tick", _I64),
        ("checkpoints", _REF),
        ("last_l0_seq", _U64),
        ("wal_object_store_uri", _REF),
        ("recent_snapshot_min_seq", _U64),
        ("sequence_tracker", _REF),
    ),
)
MANIFEST_V2 = Layout(
    "ManifestV2",
    (
        ("manifest_id", _U64),
        ("external_dbs", _REF),
        ("initialized", _BOOL),
        ("writer_epoch", _U64),
        ("compactor_epoch", _U64),
        ("replay_after_wal_id", _U64),
        ("wal_id_last_seen", _U64),
        ("last_compacted_l0_sst_view_id", _REF),
        ("ssts", _REF),
        ("l0", _REF),
        ("compacted", _REF),
        ("last_l0_clock_tick", _I64),
        ("checkpoints", _REF),
        ("last_l0_seq", _U64),
        ("recent_snapshot_min_seq", _U64),
        ("sequence_tracker", _REF),
        ("segments", _REF),
        ("segment_extractor_name", _REF),
    ),
)

TIERED_SPEC = Layout(
    "TieredCompactionSpec",
    (("ssts", _REF), ("sorted_runs", _REF), ("l0_view_ids", _REF), ("segment", _REF), ("destination", _U32)),
)
DRAIN_SPEC = Layout("DrainSegmentSpec", (("segment", _REF), ("l0_view_ids", _REF), ("sorted_runs", _REF)))
WORKER_SPEC = Layout("WorkerSpec", (("worker_id", _REF), ("last_heartbeat_ms", _U64)))
SUBCOMPACTION = Layout("Subcompaction", (("range", _REF), ("output_ssts", _REF)))
TIERED_CONTEXT = Layout("TieredCompactionContext", (("subcompactions", _REF), ("retention_min_seq", _U64)))
COMPACTION = Layout(
    "Compaction",
    (
        ("id", _REF),
        ("spec_type", _U8),
        ("spec", _REF),
        ("status", _I8),
        ("output_ssts", _REF),
        ("worker", _REF),
        ("ctx_type", _U8),
        ("ctx", _REF),
    ),
)
COMPACTIONS_V1 = Layout("CompactionsV1", (("compactor_epoch", _U64), ("recent_compactions", _REF)))
