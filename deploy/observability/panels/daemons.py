"""What one kind of process does: readers, compactors, collectors, and every Python process."""

from .panel import Panel, Row, one, process
from .queries import LAG, quantiles, rate

READER = Row(
    "Reader",
    (
        one("Lag", "SlateDBReaderStale beyond 50 s; one poll is normal.", "s", "{{db}} {{instance}}", LAG, 50),
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

COMPACTION = Row(
    "Compaction",
    (
        one(
            "Running",
            "By worker.",
            "short",
            "{{worker}}",
            "topk(12, sum by (worker) (slatedb_compactor_running{$all}))",
        ),
        Panel(
            "Bytes",
            "Read and written.",
            "Bps",
            (
                ("{{db}} in", rate("slatedb_compaction_input_bytes_total", "db")),
                ("{{db}} out", rate("slatedb_compactor_output_bytes_total", "db")),
            ),
        ),
        one(
            "Progress",
            "Of the largest job: SlateDBCompactionStuck when it stands still.",
            "percentunit",
            "{{db}} {{instance}}",
            "topk(12, slatedb_compaction_progress_ratio{$all})",
        ),
        one(
            "Phases",
            "Jobs that read, write and commit.",
            "short",
            "{{phase}}",
            "sum by (phase) (slatedb_compaction_phase{$all})",
        ),
        Panel(
            "Duration",
            "From claim to end.",
            "s",
            quantiles("slatedb_compaction_duration_seconds", "size_class, result"),
        ),
        one(
            "Errors",
            "SlateDBCompactionErrors.",
            "short",
            "{{error_type}}",
            "sum by (error_type) (increase(slatedb_compaction_errors_total{$all}[$__rate_interval]))",
        ),
        one(
            "Ended as failed",
            "SlateDBCompactionFailed.",
            "short",
            "{{db}}",
            "sum by (db) (increase(slatedb_compactor_jobs_failed_total{$all}[$__rate_interval]))",
        ),
        one(
            "Taken back",
            "SlateDBJobsReclaimed.",
            "short",
            "{{db}}",
            "sum by (db) (increase(slatedb_compactor_jobs_reclaimed_total{$all}[$__rate_interval]))",
        ),
        one(
            "Heartbeats",
            "SlateDBWorkerHeartbeatStale beyond 60 s.",
            "s",
            "{{worker}}",
            "topk(12, time() - max by (worker) (slatedb_compactor_worker_heartbeat_timestamp_seconds{$all}))",
            60,
        ),
        one(
            "Expired rows",
            "Dropped on the way.",
            "ops",
            "{{entry_type}}",
            rate("slatedb_compactor_expired_entries_total", "entry_type"),
        ),
        one(
            "Estimated end",
            "Of the largest job: the time that is left.",
            "s",
            "{{db}} {{instance}}",
            "topk(12, (slatedb_compaction_estimated_completion_timestamp_seconds{$all} > 0) - time())",
        ),
        one(
            "Resumed jobs",
            "From progress that another attempt has left.",
            "short",
            "{{db}}",
            "sum by (db) (increase(slatedb_compaction_recovered_jobs_total{$all}[$__rate_interval]))",
        ),
        Panel(
            "Work after a failure",
            "Output that was kept, and work that is repeated.",
            "Bps",
            (
                ("{{db}} kept", rate("slatedb_compaction_recovered_bytes_total", "db")),
                ("{{db}} repeated", rate("slatedb_compaction_rework_bytes_total", "db")),
            ),
        ),
        one(
            "Share of work preserved",
            "Over six hours: smaller output SSTs raise it.",
            "percentunit",
            "{{db}}",
            "max by (db) (db:slatedb_compaction_work_preserved:ratio_rate6h{$all})",
        ),
        Panel(
            "Recovery",
            "From taking a job over to its first new row.",
            "s",
            (
                *quantiles("slatedb_compaction_recovery_duration_seconds", "db"),
                ("{{db}} mean", "max by (db) (db:slatedb_compaction_recovery_duration_seconds:mean6h{$all})"),
            ),
        ),
        one(
            "Writes of the compactions file",
            "Conflicts mean many workers, or a slow store.",
            "ops",
            "{{result}}",
            rate("slatedb_compactions_writes_total", "result"),
        ),
        one(
            "Cost of progress",
            "Writes of the compactions file for each SST that is read or written; 0.5 is the limit of the design.",
            "percentunit",
            "{{db}}",
            "max by (db) (db:slatedb_compactions_write_overhead:ratio_rate1h{$all})",
            0.5,
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
            "Settings",
            "ShaleConfigReloadFailed at 0.",
            "short",
            "{{job}} {{instance}}",
            "topk(12, shale_config_last_reload_success{$all})",
        ),
    ),
)
