"""What happens in a database: its shape, its coordination, the write path, flushes, replay and the read path."""

from .panel import Panel, Row, heatmap, one, several
from .queries import CALL, COMMIT, gained, per_db, quantiles, rate

SHAPE = Row(
    "Shape",
    (
        Panel(
            "L0 and runs",
            "What a read may have to look at.",
            "short",
            (("{{db}} L0", "slatedb_db_l0_ssts{$all}"), ("{{db}} runs", "slatedb_db_sorted_runs{$all}")),
        ),
        several(
            "SSTs",
            "SSTs in the manifest, views of them, and databases to which they belong.",
            "short",
            ("{{db}} SSTs", "slatedb_db_ssts{$all}"),
            ("{{db}} views", "slatedb_db_sst_views{$all}"),
            ("{{db}} other databases", "slatedb_db_external_dbs{$all}"),
        ),
        one(
            "Manifest",
            "SlateDBManifestLarge from 16 MiB on.",
            "bytes",
            "{{db}} {{instance}}",
            "topk(12, slatedb_manifest_bytes{$all})",
            16 * 1024 * 1024,
        ),
    ),
)

COORDINATION = Row(
    "Coordination",
    (
        Panel(
            "Epochs",
            "They rise when a process takes a role.",
            "short",
            (
                ("{{db}} writer", "max by (db) (slatedb_manifest_writer_epoch{$all})"),
                ("{{db}} compactor", "max by (db) (slatedb_compactor_epoch{$all})"),
            ),
        ),
        one(
            "Manifest updates",
            "SlateDBManifestConflicts above 30 %.",
            "ops",
            "{{component}} {{result}}",
            rate("slatedb_manifest_update_attempts_total", "component, result"),
        ),
        one(
            "Fenced",
            "SlateDBFenced.",
            "short",
            "{{db}} {{component}}",
            "sum by (db, component) (increase(slatedb_fenced_total{$all}[$__rate_interval]))",
        ),
        Panel(
            "Boundary checks",
            "Most are answered with not modified.",
            "s",
            quantiles("slatedb_boundary_check_duration_seconds", "resource"),
        ),
        one(
            "Rejected writes",
            "SlateDBStaleWriteRejected: a process had stood still.",
            "short",
            "{{db}} {{resource}}",
            "sum by (db, resource) (increase(slatedb_boundary_rejected_writes_total{$all}[$__rate_interval]))",
        ),
        one(
            "Checkpoints",
            "Without expiry they keep SSTs for ever.",
            "short",
            "{{db}} {{state}}",
            "sum by (db, state) (slatedb_checkpoints{$all})",
        ),
        one(
            "Oldest checkpoint",
            "Its age: SlateDBCheckpointWithoutExpiryOld.",
            "s",
            "{{db}} {{state}}",
            "time() - min by (db, state) (slatedb_checkpoint_oldest_timestamp_seconds{$all} > 0)",
        ),
        one(
            "Changes of checkpoints",
            "Expired ones were removed by the collector.",
            "short",
            "{{db}} {{op}} {{result}}",
            gained("slatedb_checkpoint_operations_total", "db, op, result"),
        ),
        Panel(
            "Duration of manifest updates",
            "With all retries.",
            "s",
            quantiles("slatedb_manifest_update_duration_seconds", "component"),
        ),
        one(
            "Age of the manifest",
            "Since this process last committed one.",
            "s",
            "{{db}} {{instance}}",
            "topk(12, time() - (slatedb_manifest_written_timestamp_seconds{$all} > 0))",
        ),
        one(
            "New manifests",
            "SlateDBManifestChurn above 20 a minute.",
            "short",
            "{{db}}",
            "max by (db) (delta(slatedb_manifest_id{$all}[$__rate_interval]))",
        ),
        one(
            "Searches for the latest version",
            "A fallback lists the folder: SlateDBManifestVersionsGrowing.",
            "ops",
            "{{resource}} {{result}}",
            rate("slatedb_sequenced_latest_reads_total", "resource, result"),
        ),
        one(
            "Probes of a search",
            "The mean number of ids; one is normal.",
            "short",
            "{{resource}}",
            "sum by (resource) (rate(slatedb_sequenced_read_probes_sum{$all}[$__rate_interval])) / "
            "(sum by (resource) (rate(slatedb_sequenced_read_probes_count{$all}[$__rate_interval])) > 0)",
        ),
        several(
            "Clones and deletion",
            "Clones detached from their parents, objects due for deletion, and whether the database is destroyed.",
            "short",
            ("{{db}} detached", gained("slatedb_gc_detached_clones_total", "db")),
            ("{{db}} due", "max by (db) (slatedb_gc_pending_deletes{$all})"),
            ("{{db}} destroyed", "max by (db) (slatedb_db_destroyed_timestamp_seconds{$all} > bool 0)"),
        ),
    ),
)

WRITES = Row(
    "Write path",
    (
        several(
            "Rows",
            "Tombstones included, and the batches that held them.",
            "ops",
            ("{{db}} rows", rate("slatedb_db_write_ops_total", "db")),
            ("{{db}} batches", rate("slatedb_db_write_batches_total", "db")),
        ),
        heatmap("Durable commits", "Where the time of commits lies; 0.5 s is the objective.", COMMIT),
        Panel(
            "Bytes",
            "Into the memtable, into WAL files, into L0.",
            "Bps",
            (
                ("{{db}} memtable", rate("slatedb_db_memtable_write_bytes_total", "db")),
                ("{{db}} WAL", rate("slatedb_wal_flush_bytes_total", "db")),
                ("{{db}} L0", rate("slatedb_db_l0_flush_bytes_total", "db")),
            ),
        ),
        Panel(
            "Unflushed",
            "Writes wait at the limit: SlateDBUnflushedNearLimit.",
            "bytes",
            (
                ("{{db}}", "slatedb_db_unflushed_bytes{$all}"),
                ("{{db}} limit", "slatedb_db_unflushed_limit_bytes{$all}"),
            ),
        ),
        one("Back-pressure", "SlateDBBackpressure.", "ops", "{{db}}", rate("slatedb_db_backpressure_total", "db")),
        one("L0 stalls", "SlateDBL0Stalled.", "ops", "{{db}} {{type}}", rate("slatedb_db_l0_stalls_total", "db, type")),
        one(
            "L0 full",
            "SlateDBL0Stalled: 1 while flushes wait.",
            "short",
            "{{db}}",
            "max by (db) (slatedb_db_l0_stalled{$all})",
        ),
        Panel(
            "WAL files",
            "SlateDBWALFlushFailing when none are written.",
            "ops",
            (("{{db}}", rate("slatedb_wal_flushes_total", "db")),),
        ),
        one(
            "WAL files in flight",
            "At max_parallel_writes for long: the store limits the writer.",
            "short",
            "{{db}}",
            "slatedb_wal_puts_in_flight{$all}",
        ),
        several(
            "WAL buffer",
            "Rows that are in no WAL file yet: SlateDBWALFlushFailing.",
            "bytes",
            ("{{db}}", "slatedb_wal_buffer_bytes{$all}"),
        ),
        one(
            "Keys kept for transactions",
            "Bytes; a transaction that stays open keeps them.",
            "bytes",
            "{{db}}",
            "slatedb_db_transaction_history_bytes{$all}",
        ),
    ),
)

WAL_BYTES = per_db("slatedb_wal_flush_bytes_total")
L0_BYTES = per_db("slatedb_db_l0_flush_bytes_total")
OUTPUT_BYTES = per_db("slatedb_compactor_output_bytes_total")
MEMTABLE_BYTES = per_db("slatedb_db_memtable_write_bytes_total")
BLOCKS = per_db("slatedb_db_cache_accesses_total", ', entry_kind="data_block"')
LOOKUPS = per_db("slatedb_db_requests_total", ', op="get"')

AMPLIFICATION = Row(
    "Amplification",
    (
        one(
            "Writes",
            "Bytes written to the store for each byte that was written to the database.",
            "short",
            "{{db}}",
            f"({WAL_BYTES} + {L0_BYTES} + ({OUTPUT_BYTES} or 0 * {WAL_BYTES})) / ({MEMTABLE_BYTES} > 0)",
        ),
        one(
            "Reads",
            "Blocks looked up for each lookup of a key; scans look up blocks, too.",
            "short",
            "{{db}}",
            f"{BLOCKS} / ({LOOKUPS} > 0)",
        ),
        one(
            "SSTs a lookup may read",
            "L0 SSTs and sorted runs.",
            "short",
            "{{db}}",
            "max by (db) (slatedb_db_l0_ssts{$all}) + max by (db) (slatedb_db_sorted_runs{$all})",
        ),
    ),
)

FLUSHES = Row(
    "Flushes of memtables",
    (
        several(
            "Steps",
            "A frozen memtable is uploaded as SSTs, then one update of the manifest adds them.",
            "short",
            ("{{db}} frozen", gained("slatedb_memtable_flush_freezes_total", "db")),
            ("{{db}} uploaded", gained("slatedb_memtable_flush_l0_uploads_total", "db")),
            ("{{db}} in the manifest", gained("slatedb_db_immutable_memtable_flushes_total", "db")),
            ("{{db}} updates", gained("slatedb_memtable_flush_l0_flushes_total", "db")),
        ),
        several(
            "Requests",
            "What the flusher was asked for.",
            "short",
            ("{{db}} flushes", gained("slatedb_memtable_flush_flush_requests_total", "db")),
            ("{{db}} flushes of the WAL", gained("slatedb_wal_flush_requests_total", "db")),
            ("{{db}} checkpoints", gained("slatedb_memtable_flush_checkpoint_requests_total", "db")),
        ),
        one(
            "Reads of the manifest",
            "By the flusher, to see what other processes committed.",
            "short",
            "{{db}}",
            gained("slatedb_memtable_flush_manifest_refreshes_total", "db"),
        ),
    ),
)

REPLAY = Row(
    "Opening: replay and fences",
    (
        one(
            "Duration of a replay",
            "Of the last opening; long when the last writer ended without a flush of its memtables.",
            "s",
            "{{db}} {{instance}}",
            "topk(12, slatedb_wal_replay_duration_seconds_sum{$all}"
            " / (slatedb_wal_replay_duration_seconds_count{$all} > 0))",
        ),
        several(
            "WAL files",
            "The id of the last one, and how many replays have read.",
            "short",
            ("{{db}} last id", "max by (db) (slatedb_wal_last_id{$all})"),
            ("{{db}} replayed", gained("slatedb_wal_replayed_objects_total", "db")),
        ),
        several(
            "Fences",
            "Time to write one, and how often it met a file of the old writer.",
            "s",
            (
                "{{db}} {{instance}}",
                "topk(12, slatedb_wal_fence_duration_seconds_sum{$all}"
                " / (slatedb_wal_fence_duration_seconds_count{$all} > 0))",
            ),
            ("{{db}} retries", gained("slatedb_wal_fence_retries_total", "db")),
        ),
    ),
)

READS = Row(
    "Read path",
    (
        one(
            "Cache",
            "Look-ups by what and whether it was there.",
            "ops",
            "{{entry_kind}} {{result}}",
            rate("slatedb_db_cache_accesses_total", "entry_kind, result"),
        ),
        Panel(
            "Filters",
            "False positives cost a block each.",
            "ops",
            (
                ("{{kind}} ruled out", rate("slatedb_db_sst_filter_negatives_total", "kind")),
                ("{{kind}} passed", rate("slatedb_db_sst_filter_positives_total", "kind")),
                ("{{kind}} in vain", rate("slatedb_db_sst_filter_false_positives_total", "kind")),
            ),
        ),
        heatmap("Lookups", "Where the time of lookups lies; 0.1 s is the objective.", CALL, ', op="get"'),
        one(
            "Operands",
            "Given to the merge operator.",
            "ops",
            "{{path}}",
            rate("slatedb_merge_operator_operands_total", "path"),
        ),
        several(
            "Failures",
            "Operands that stay because the merge operator refused them, and errors of the block cache.",
            "short",
            ("{{path}} operands", gained("slatedb_merge_operator_failures_total", "path")),
            ("{{db}} cache", gained("slatedb_db_cache_errors_total", "db")),
        ),
    ),
)
