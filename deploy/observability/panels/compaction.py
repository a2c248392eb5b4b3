"""Compaction: jobs, workers, recovery, and jobs that are large enough for Spark."""

from .panel import Panel, Row, one, several
from .queries import gained, quantiles, rate

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
        several(
            "Backlog",
            "Jobs that no worker has claimed, and claims: add workers while it grows.",
            "short",
            ("{{db}} waiting", "max by (db) (slatedb_compactor_backlog_jobs{$all})"),
            ("{{db}} claimed", gained("slatedb_compactor_jobs_claimed_total", "db")),
        ),
        several(
            "Bytes of jobs",
            "Estimated source bytes of jobs that wait, and of all active jobs.",
            "bytes",
            ("{{db}} waiting", "max by (db) (slatedb_compactor_backlog_bytes{$all})"),
            ("{{db}} active", "max by (db) (slatedb_compactor_inflight_input_bytes{$all})"),
        ),
        several(
            "SSTs",
            "Sources of running jobs, sources that were read to their end, and outputs.",
            "short",
            ("{{db}} sources", "sum by (db) (slatedb_compaction_inflight_input_ssts{$all})"),
            ("{{db}} read", gained("slatedb_compaction_ssts_processed_total", "db")),
            ("{{db}} written", gained("slatedb_compactor_ssts_written_total", "db")),
            ("{{db}} promoted", gained("slatedb_compactor_l0_promotions_total", "db")),
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
        several(
            "Heartbeats",
            "Time since the last one; SlateDBWorkerHeartbeatStale beyond twice the time until a job is reclaimed.",
            "s",
            (
                "{{worker}}",
                "topk(12, time() - max by (worker) (slatedb_compactor_worker_heartbeat_timestamp_seconds{$all}))",
            ),
            ("{{db}} reclaimed", "max by (db) (slatedb_compactor_worker_heartbeat_timeout_seconds{$all})"),
        ),
        one(
            "Databases of workers",
            "1: a worker polls the database. 0 for minutes: /statusz of the worker tells why.",
            "short",
            "{{db}}",
            "max by (db) (slatedb_compactor_worker_up{$all})",
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

SPARK = Row(
    "Large jobs, for Spark",
    (
        Panel(
            "Duration",
            "Jobs of 1 GiB and more; `spark_min_bytes` says which of them run on Spark.",
            "s",
            quantiles("slatedb_compaction_duration_seconds", "size_class", ', size_class=~"lt_16g|ge_16g"'),
        ),
        one(
            "Ended",
            "By size and result.",
            "short",
            "{{size_class}} {{result}}",
            "sum by (size_class, result) (increase(slatedb_compaction_duration_seconds_count"
            '{$all, size_class=~"lt_16g|ge_16g"}[$__rate_interval]))',
        ),
        one(
            "Requests of Spark",
            "Requests that jobs of Spark send themselves, as far as their processes are scraped.",
            "reqps",
            "{{api}}",
            rate("slatedb_object_store_requests_total", "api", ', component="pipeline"'),
        ),
    ),
)
