"""What one kind of process does: readers, collectors, and every Python process."""

from .panel import Panel, Row, one, process, several
from .queries import LAG, gained, quantiles, rate

READER = Row(
    "Reader",
    (
        one("Lag", "SlateDBReaderStale beyond 50 s; one poll is normal.", "s", "{{db}} {{instance}}", LAG, 50),
        one(
            "Interval of polls",
            "SlateDBReaderStale after several of them.",
            "s",
            "{{db}} {{instance}}",
            "topk(12, slatedb_reader_poll_interval_seconds{$all})",
        ),
        one(
            "Replayed WAL",
            "In memory.",
            "bytes",
            "{{db}} {{instance}}",
            "topk(12, slatedb_reader_memtable_bytes{$all})",
        ),
        Panel(
            "Lease",
            "SlateDBReaderLeaseLost.",
            "short",
            (
                ("{{db}} lost", "sum by (db) (increase(slatedb_reader_lease_lost_total{$all}[$__rate_interval]))"),
                (
                    "{{db}} made anew",
                    "sum by (db) (increase(slatedb_reader_reestablish_total{$all}[$__rate_interval]))",
                ),
            ),
        ),
    ),
)

STANDBY = Row(
    "Warm standby",
    (
        one(
            "Silence of the active writer",
            "Since the last evidence of its life; a takeover follows after `standby.takeover_after`.",
            "s",
            "{{db}} {{instance}}",
            "topk(12, shale_standby_active_silent_seconds{$all})",
        ),
        several(
            "Takeovers",
            "By their reason, and challenges of writers of which nothing else told.",
            "short",
            ("{{db}} {{reason}}", gained("shale_standby_takeovers_total", "db, reason")),
            ("{{db}} challenges", gained("shale_standby_challenges_total", "db")),
        ),
        one(
            "Duration of the last takeover",
            "Until the database was open.",
            "s",
            "{{db}} {{instance}}",
            "topk(12, shale_standby_takeover_seconds{$all} > 0)",
        ),
        one(
            "Rows of the WAL in memory",
            "What a takeover need not read; at most `standby.wal_cache_bytes`.",
            "bytes",
            "{{db}} {{instance}}",
            "topk(12, shale_standby_wal_cache_bytes{$all})",
        ),
    ),
)

GC = Row(
    "Collection",
    (
        one(
            "Since the last success",
            "SlateDBGCNotRunning after an hour.",
            "s",
            "{{db}} {{resource}}",
            "topk(12, time() - max by (db, resource) (slatedb_gc_last_success_timestamp_seconds{$all} > 0))",
            3600,
        ),
        one("Deleted", "Objects.", "ops", "{{resource}}", rate("slatedb_gc_deleted_objects_total", "resource")),
        one("Freed", "Bytes.", "Bps", "{{resource}}", rate("slatedb_gc_deleted_bytes_total", "resource")),
        one(
            "Candidates",
            "SlateDBGarbageGrowing when they only grow.",
            "short",
            "{{db}} {{resource}}",
            "topk(12, slatedb_gc_candidates{$all})",
        ),
        one(
            "Versions",
            "SlateDBManifestVersionsGrowing from 1000 on.",
            "short",
            "{{db}} {{resource}}",
            "topk(12, slatedb_gc_versions{$all})",
            1000,
        ),
        one(
            "Boundaries",
            "They follow the versions: SlateDBBoundaryAdvanceFailing.",
            "short",
            "{{db}} {{resource}}",
            "max by (db, resource) (slatedb_boundary_value{$all})",
        ),
        one(
            "Advances of a boundary",
            "Conflicts are other collectors.",
            "short",
            "{{resource}} {{result}}",
            "sum by (resource, result) (increase(slatedb_boundary_advances_total{$all}[$__rate_interval]))",
        ),
        one(
            "Checks of a boundary",
            "Stale ones are writes that came too late: SlateDBStaleWriteRejected.",
            "ops",
            "{{resource}} {{result}}",
            rate("slatedb_boundary_checks_total", "resource, result"),
        ),
        Panel(
            "Age of the newest backup",
            "SlateDBBackupOld above the limit, which is 0 while the gc watches no backups.",
            "s",
            (
                ("{{db}}", "time() - max by (db) (slatedb_backup_newest_timestamp_seconds{$all} > 0)"),
                ("limit {{db}}", "max by (db) (slatedb_backup_max_age_seconds{$all})"),
            ),
        ),
        one(
            "Interval",
            "Between two passes; 0 while the task is disabled.",
            "s",
            "{{db}} {{resource}}",
            "max by (db, resource) (slatedb_gc_interval_seconds{$all})",
        ),
        one(
            "Passes",
            "SlateDBGCNotRunning without any that succeeds.",
            "short",
            "{{resource}} {{result}}",
            gained("slatedb_gc_runs_total", "resource, result"),
        ),
        Panel(
            "Duration of a pass", "Listing and deleting.", "s", quantiles("slatedb_gc_run_duration_seconds", "resource")
        ),
        one(
            "Errors",
            "By type.",
            "short",
            "{{resource}} {{error_type}}",
            "sum by (resource, error_type) (increase(slatedb_gc_errors_total{$all}[$__rate_interval]))",
        ),
        one(
            "Age of the cut-off",
            "What holds SSTs back: the largest term decides.",
            "s",
            "{{db}} {{term}}",
            "topk(12, time() - (slatedb_gc_cutoff_timestamp_seconds{$all} > 0))",
        ),
    ),
)

RUNTIME = Row(
    "Process",
    (
        process(
            "CPU",
            "Cores; the event loop can use one.",
            "short",
            "{{job}} {{instance}}",
            rate("process_cpu_seconds_total", "job, instance"),
        ),
        process(
            "Memory",
            "ShaleMemoryNearLimit from 90 % of the limit on.",
            "bytes",
            "{{job}} {{instance}}",
            "topk(12, process_resident_memory_bytes{$all})",
        ),
        process(
            "Memory by part",
            "What each part holds; the interpreter and free pages of the heap come on top.",
            "bytes",
            "{{job}} {{instance}} {{part}}",
            "topk(20, shale_memory_bytes{$all} > 0)",
        ),
        process(
            "Memory of the limit",
            "From 1 on writes are refused until there is room.",
            "percentunit",
            "{{job}} {{instance}}",
            "topk(12, process_resident_memory_bytes{$all} / (shale_memory_limit_bytes{$all} > 0))",
        ),
        process(
            "Refused for memory",
            "Writes that got 429 or OOM.",
            "reqps",
            "{{job}} {{instance}}",
            rate("shale_memory_refusals_total", "job, instance"),
        ),
        process(
            "Dropped for memory",
            "Connections whose clients did not read their responses.",
            "cps",
            "{{job}} {{instance}}",
            rate("shale_memory_dropped_connections_total", "job, instance"),
        ),
        Panel(
            "Lag of the event loop",
            "ShaleEventLoopLag: p99 above 0.25 s.",
            "s",
            quantiles("shale_event_loop_lag_seconds", "instance"),
            threshold=0.25,
            with_db=False,
        ),
        process("Tasks", "On the event loop.", "short", "{{job}} {{instance}}", "topk(12, shale_tasks{$all})"),
        process(
            "Queue of CPU work",
            "More than a few: more `cpu_threads`, or a larger machine.",
            "short",
            "{{job}} {{instance}}",
            "topk(12, shale_executor_queue{$all})",
        ),
        process(
            "Open files", "Connections included.", "short", "{{job}} {{instance}}", "topk(12, process_open_fds{$all})"
        ),
        process(
            "Roles",
            "No process is active: see SlateDBWriterDown and the like.",
            "short",
            "{{job}} {{instance}} {{role}}",
            "topk(12, shale_role{$all} == 1)",
        ),
        process(
            "Versions",
            "Which builds run.",
            "short",
            "{{component}} {{version}} {{revision}}",
            "count by (component, version, revision) (shale_build_info{$all})",
        ),
        process(
            "Age",
            "Since the start of the process; short ages one after the other are crashes.",
            "s",
            "{{job}} {{instance}}",
            "topk(12, time() - shale_start_timestamp_seconds{$all})",
        ),
        several(
            "Exit codes",
            "Of processes that are about to end for good; 0 while they work.",
            "short",
            (
                "{{component}} {{instance}}",
                "topk(12, shale_exit_code{$all} * on (instance) group_left () "
                "max by (instance) (shale_daemon_info{$all}))",
            ),
        ),
        process(
            "Versions of settings",
            "Processes of one role with different hashes have different settings.",
            "short",
            "{{sha256_8}}",
            "count by (sha256_8) (shale_config_hash_info{$all})",
        ),
        process(
            "Age of settings",
            "Since they were last read.",
            "s",
            "{{job}} {{instance}}",
            "topk(12, time() - (shale_config_last_reload_timestamp_seconds{$all} > 0))",
        ),
        process(
            "Certificate expires in",
            "ShaleTLSCertificateExpiring below a week.",
            "s",
            "{{job}} {{instance}}",
            "topk(12, (shale_tls_certificate_expiry_timestamp_seconds{$all} > 0) - time())",
        ),
        process(
            "Certificate",
            "0: the changed files of the certificate cannot be used, and the old one is in use.",
            "short",
            "{{job}} {{instance}}",
            "topk(12, shale_tls_last_reload_success{$all})",
        ),
        process(
            "Observed latencies",
            "`metrics.sample_rate`: the share of calls whose latency is observed.",
            "percentunit",
            "{{job}} {{instance}}",
            "topk(12, shale_metrics_sample_ratio{$all})",
        ),
        process(
            "Settings",
            "ShaleConfigReloadFailed at 0.",
            "short",
            "{{job}} {{instance}}",
            "topk(12, shale_config_last_reload_success{$all})",
        ),
    ),
)
