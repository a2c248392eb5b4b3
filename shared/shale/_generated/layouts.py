"""Layouts of the tables in ``schemas/``.  Written by ``make gen-schemas``; do not edit."""

TABLES: dict[str, tuple[tuple[str, str, bool], ...]] = {
    "Ulid": (
        ("high", "ulong", False),
        ("low", "ulong", False),
    ),
    "Uuid": (
        ("high", "ulong", False),
        ("low", "ulong", False),
    ),
    "BytesBound": (
        ("key", "[ubyte]", False),
        ("bound_type", "byte", False),
    ),
    "BytesRange": (
        ("start_bound", "BytesBound", True),
        ("end_bound", "BytesBound", True),
    ),
    "TieredCompactionSpec": (
        ("ssts", "[Ulid]", False),
        ("sorted_runs", "[uint]", False),
        ("l0_view_ids", "[Ulid]", False),
        ("segment", "[ubyte]", False),
        ("destination", "uint", False),
    ),
    "DrainSegmentSpec": (
        ("segment", "[ubyte]", True),
        ("l0_view_ids", "[Ulid]", False),
        ("sorted_runs", "[uint]", False),
    ),
    "WorkerSpec": (
        ("worker_id", "string", False),
        ("last_heartbeat_ms", "ulong", False),
    ),
    "Subcompaction": (
        ("range", "BytesRange", True),
        ("output_ssts", "[CompactedSsTable]", False),
    ),
    "TieredCompactionContext": (
        ("subcompactions", "[Subcompaction]", False),
        ("retention_min_seq", "ulong", False),
    ),
    "Compaction": (
        ("id", "Ulid", True),
        ("spec_type", "ubyte", False),
        ("spec", "CompactionSpec", True),
        ("status", "byte", False),
        ("output_ssts", "[CompactedSsTable]", False),
        ("worker", "WorkerSpec", False),
        ("ctx_type", "ubyte", False),
        ("ctx", "CompactionContext", False),
    ),
    "CompactionsV1": (
        ("compactor_epoch", "ulong", False),
        ("recent_compactions", "[Compaction]", True),
    ),
    "CompactedSsTable": (
        ("id", "Ulid", True),
        ("info", "SsTableInfo", True),
        ("visible_range", "BytesRange", False),
        ("format_version", "ushort", False),
    ),
    "CompactedSsTableV2": (
        ("id", "Ulid", True),
        ("info", "SsTableInfo", True),
        ("format_version", "ushort", False),
    ),
    "CompactedSsTableView": (
        ("id", "Ulid", True),
        ("sst_id", "Ulid", True),
        ("visible_range", "BytesRange", False),
    ),
    "SortedRun": (
        ("id", "uint", False),
        ("ssts", "[CompactedSsTable]", True),
    ),
    "SortedRunV2": (
        ("id", "uint", False),
        ("ssts", "[CompactedSsTableView]", True),
    ),
    "Segment": (
        ("prefix", "[ubyte]", True),
        ("last_compacted_l0_sst_view_id", "Ulid", False),
        ("l0", "[CompactedSsTableView]", True),
        ("compacted", "[SortedRunV2]", True),
    ),
    "WriterCheckpoint": (
        ("epoch", "ulong", False),
    ),
    "Checkpoint": (
        ("id", "Uuid", True),
        ("manifest_id", "ulong", False),
        ("checkpoint_expire_time_s", "uint", False),
        ("checkpoint_create_time_s", "uint", False),
        ("metadata_type", "ubyte", False),
        ("metadata", "CheckpointMetadata", False),
        ("name", "string", False),
    ),
    "ExternalDb": (
        ("path", "string", True),
        ("source_checkpoint_id", "Uuid", True),
        ("final_checkpoint_id", "Uuid", False),
        ("sst_ids", "[Ulid]", True),
    ),
    "ManifestV1": (
        ("manifest_id", "ulong", False),
        ("external_dbs", "[ExternalDb]", False),
        ("initialized", "bool", False),
        ("writer_epoch", "ulong", False),
        ("compactor_epoch", "ulong", False),
        ("replay_after_wal_id", "ulong", False),
        ("wal_id_last_seen", "ulong", False),
        ("l0_last_compacted", "Ulid", False),
        ("l0", "[CompactedSsTable]", True),
        ("compacted", "[SortedRun]", True),
        ("last_l0_clock_tick", "long", False),
        ("checkpoints", "[Checkpoint]", True),
        ("last_l0_seq", "ulong", False),
        ("wal_object_store_uri", "string", False),
        ("recent_snapshot_min_seq", "ulong", False),
        ("sequence_tracker", "[ubyte]", False),
    ),
    "ManifestV2": (
        ("manifest_id", "ulong", False),
        ("external_dbs", "[ExternalDb]", False),
        ("initialized", "bool", False),
        ("writer_epoch", "ulong", False),
        ("compactor_epoch", "ulong", False),
        ("replay_after_wal_id", "ulong", False),
        ("wal_id_last_seen", "ulong", False),
        ("last_compacted_l0_sst_view_id", "Ulid", False),
        ("ssts", "[CompactedSsTableV2]", True),
        ("l0", "[CompactedSsTableView]", True),
        ("compacted", "[SortedRunV2]", True),
        ("last_l0_clock_tick", "long", False),
        ("checkpoints", "[Checkpoint]", True),
        ("last_l0_seq", "ulong", False),
        ("recent_snapshot_min_seq", "ulong", False),
        ("sequence_tracker", "[ubyte]", False),
        ("segments", "[Segment]", False),
        ("segment_extractor_name", "string", False),
    ),
    "SsTableInfo": (
        ("first_entry", "[ubyte]", False),
        ("index_offset", "ulong", False),
        ("index_len", "ulong", False),
        ("filter_offset", "ulong", False),
        ("filter_len", "ulong", False),
        ("compression_format", "byte", False),
        ("sst_type", "byte", False),
        ("last_entry", "[ubyte]", False),
        ("stats_offset", "ulong", False),
        ("stats_len", "ulong", False),
        ("filter_format", "byte", False),
    ),
    "BlockMeta": (
        ("offset", "ulong", False),
        ("first_key", "[ubyte]", True),
    ),
    "SsTableIndex": (
        ("block_meta", "[BlockMeta]", True),
    ),
    "BlockStats": (
        ("num_puts", "ushort", False),
        ("num_deletes", "ushort", False),
        ("num_merges", "ushort", False),
    ),
    "SstStats": (
        ("num_puts", "ulong", False),
        ("num_deletes", "ulong", False),
        ("num_merges", "ulong", False),
        ("raw_key_size", "ulong", False),
        ("raw_val_size", "ulong", False),
        ("block_stats", "[BlockStats]", False),
    ),
}
"""Table to its fields in slot order: name, type, whether it is required.

A union takes two slots, its type and its value.
"""

UNIONS: dict[str, tuple[str, ...]] = {
    "CompactionSpec": ("TieredCompactionSpec", "DrainSegmentSpec"),
    "CompactionContext": ("TieredCompactionContext",),
    "CheckpointMetadata": ("WriterCheckpoint",),
}
"""Union to its tables; the first one has type 1."""
