"""What happens in a database: its shape, who coordinates it, the way of writes and of reads, the object store."""

from .panel import Panel, Row, one
from .queries import quantiles, rate

SHAPE = Row(
    "Shape",
    (
        Panel(
            "L0 and runs",
            "What a read may have to look at.",
            "short",
            (("{{db}} L0", "slatedb_db_l0_ssts{$all}"), ("{{db}} runs", "slatedb_db_sorted_runs{$all}")),
        ),
        one("SSTs", "Distinct SSTs in the manifest.", "short", "{{db}}", "slatedb_db_ssts{$all}"),
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
    ),
)

WRITES = Row(
    "Write path",
    (
        one("Rows", "Tombstones included.", "ops", "{{db}}", rate("slatedb_db_write_ops_total", "db")),
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
                ("{{kind}} in vain", rate("slatedb_db_sst_filter_false_positives_total", "kind")),
            ),
        ),
        one(
            "Operands",
            "Given to the merge operator.",
            "ops",
            "{{path}}",
            rate("slatedb_merge_operator_operands_total", "path"),
        ),
    ),
)

STORE = Row(
    "Object store",
    (
        one(
            "Requests",
            "Attempts, by call.",
            "reqps",
            "{{component}} {{api}}",
            rate("slatedb_object_store_requests_total", "component, api"),
        ),
        one(
            "Errors",
            "SlateDBObjectStoreErrors; precondition is how processes meet, and no fault.",
            "reqps",
            "{{component}} {{error_type}}",
            rate("slatedb_object_store_errors_total", "component, error_type"),
        ),
        Panel(
            "Duration",
            "SlateDBObjectStoreLatency: PUTs above 2 s.",
            "s",
            quantiles("slatedb_object_store_request_duration_seconds", "api"),
            threshold=2,
        ),
        one(
            "Throttled",
            "SlateDBObjectStoreThrottled.",
            "reqps",
            "{{component}}",
            rate("slatedb_object_store_errors_total", "component", ', error_type="throttle"'),
            0.1,
        ),
        Panel(
            "Commit records",
            "SlateDBTwoPhaseUncommitted above 0; SlateDBTransactionalStoreDown while the store of records is away.",
            "short",
            (
                ("{{db}} uncommitted", "max by (db) (slatedb_two_phase_uncommitted{$all})"),
                (
                    "{{db}} recovered",
                    "sum by (db) (increase(slatedb_two_phase_recovered_total{$all}[$__rate_interval]))",
                ),
                ("{{db}} store up", "max by (db) (slatedb_transactional_store_up{$all})"),
            ),
        ),
        one(
            "Clock skew",
            "SlateDBClockSkew beyond 5 s.",
            "s",
            "{{instance}}",
            "max by (instance) (abs(slatedb_clock_skew_seconds{$all}))",
            5,
        ),
        one(
            "Disk cache",
            "Share of parts found on disk.",
            "percentunit",
            "{{db}}",
            "sum by (db) (rate(slatedb_object_store_cache_part_hits_total{$all}[$__rate_interval])) / "
            "(sum by (db) (rate(slatedb_object_store_cache_part_accesses_total{$all}[$__rate_interval])) > 0)",
        ),
    ),
)
