"""The one list of metric names (docs/how-to/monitor.md).

Facts of the engine begin with ``slatedb_`` and mean what the same fact of the Rust SlateDB means; facts of our
processes begin with ``shale_``.  A test compares this list with the documentation.
"""

from shale.telemetry.spec import (
    FAST_SECONDS,
    JOB_SECONDS,
    PROBES,
    SEQUENCED,
    STORE_SECONDS,
    MetricKind,
    MetricSpec,
)

__all__ = ["CATALOGUE", "MetricKind", "MetricSpec"]

OUTCOMES = ("completed", "failed")
HIT_MISS = ("hit", "miss")
DB_OPS = ("get", "put", "delete", "scan", "flush", "merge", "write")
STORE_LABELS = ("component", "store_type", "op", "api")
STORE_OPS = ("get", "put", "delete")
RESP_COMMANDS = (
    "append", "auth", "client", "command", "config", "copy", "dbsize", "decr", "decrby", "del", "discard", "echo",
    "eval", "evalsha", "exec", "exists", "expire", "expireat", "expiretime", "flushall", "flushdb", "function", "get",
    "getbit", "getdel", "getex", "getrange", "getset", "hello", "incr", "incrby", "incrbyfloat", "info", "keys", "mget",
    "mset", "msetnx", "multi", "persist", "pexpire", "pexpireat", "pexpiretime", "ping", "psetex", "pttl", "quit",
    "randomkey", "rename", "renamenx", "scan", "script", "select", "set", "setbit", "setex", "setnx", "setrange",
    "shale.scan", "strlen", "substr", "time", "touch", "ttl", "type", "unlink", "unwatch", "waitaof", "watch", "other",
)  # fmt: skip

RESP_CATEGORIES = ("read", "write", "scan", "other")


def _counter(name: str, help_: str, *labels: str, db: bool = True, **values: tuple[str, ...]) -> MetricSpec:
    return MetricSpec(name, MetricKind.COUNTER, help_, ("db", *labels) if db else labels, (), values)


def _gauge(name: str, help_: str, *labels: str, db: bool = True, **values: tuple[str, ...]) -> MetricSpec:
    return MetricSpec(name, MetricKind.GAUGE, help_, ("db", *labels) if db else labels, (), values)


def _histogram(
    name: str, buckets: tuple[float, ...], help_: str, *labels: str, db: bool = True, **values: tuple[str, ...]
) -> MetricSpec:
    return MetricSpec(name, MetricKind.HISTOGRAM, help_, ("db", *labels) if db else labels, buckets, values)


_PROCESS = (
    _gauge(
        "shale_build_info",
        "Always 1; the labels say which build runs.",
        "version", "revision", "python_version", "component", "formats", db=False, component=(),
    ),
    _gauge("shale_daemon_info", "Always 1, also before the store is open: which daemon this is.", "component"),
    _gauge("shale_exit_code", "The code with which the process is about to exit; 0 while it works.", "component"),
    _gauge("shale_start_timestamp_seconds", "When the process started.", db=False),
    _gauge("shale_config_hash_info", "Always 1; the label is the hash of the settings in use.", "sha256_8", db=False),
    _gauge("shale_config_last_reload_success", "Whether the last reading of the settings worked.", db=False),
    _gauge("shale_config_last_reload_timestamp_seconds", "When the settings were last read.", db=False),
    _gauge("shale_tls_certificate_expiry_timestamp_seconds", "When the certificate of the ports expires.", db=False),
    _gauge("shale_tls_last_reload_success", "Whether the last reading of the certificate worked.", db=False),
    _gauge("shale_role", "Whether the process has this role now.", "role", db=False),
    _gauge("shale_standby_active_silent_seconds", "Since the last evidence of life of the active writer."),
    _gauge("shale_standby_takeover_seconds", "How long the last takeover took until the database was open."),
    _gauge("shale_standby_wal_cache_bytes", "Rows of the WAL that a standby keeps in memory for a takeover."),
    _counter("shale_standby_challenges_total", "Challenges written because nothing else told of the active writer."),
    _counter(
        "shale_standby_takeovers_total",
        "Takeovers by this standby.",
        "reason",
        reason=("new", "closed", "silent", "unsigned", "promoted"),
    ),
    _histogram("shale_event_loop_lag_seconds", FAST_SECONDS, "How late a tick of the event loop came.", db=False),
    _gauge("shale_tasks", "Tasks that exist on the event loop.", db=False),
    _gauge("shale_executor_queue", "Pieces of CPU work that wait for a thread.", db=False),
    _gauge(
        "shale_memory_bytes", "What a part of the process holds in memory.", "part", db=False,
        part=(
            "memtables", "cache", "transactions", "requests", "responses", "scans", "connections", "compaction",
            "wal_rows",
        ),
    ),
    _gauge("shale_memory_limit_bytes", "The memory that the process may take: memory.limit.", db=False),
    _counter(
        "shale_memory_dropped_connections_total",
        "Connections that ended because responses that were not read took the memory for them.",
        db=False,
    ),
    _counter("shale_memory_refusals_total", "Requests that were refused because memory was full.", db=False),
    _gauge("shale_metrics_sample_ratio", "Share of requests whose latency is observed.", db=False),
    _counter(
        "shale_admin_calls_total", "Calls of the admin port that may change something, and FLUSHDB and FLUSHALL.",
        "outcome",
        outcome=("completed", "failed", "refused"),
    ),
    _counter(
        "shale_auth_refusals_total",
        "Requests and AUTH commands without a valid token that were refused because their address had sent too many.",
    ),
    _counter(
        "shale_quota_refusals_total", "Requests and commands refused because a quota was used up, by its role.",
        "role", role=("read", "write", "admin"),
    ),
    _counter(
        "shale_admin_quota_refusals_total", "Calls of the admin port over admin.requests_per_second, by their role.",
        "role", role=("read", "write", "admin"),
    ),
    _counter(
        "shale_http_requests_total", "Answers sent by the network interface, by the role that the method needs.",
        "route", "category", "status", category=("read", "write"),
    ),
    _histogram(
        "shale_http_request_duration_seconds", STORE_SECONDS, "Time from the request to the end of its answer.", "route"
    ),
    _counter(
        "shale_http_refusals_total", "Connections and malformed requests that were refused before they were routed.",
        "status", status=("400", "408", "429", "431", "501", "503"),
    ),
    _gauge("shale_http_requests_inflight", "Requests of the network interface that are being answered."),
    _counter(
        "shale_resp_commands_total", "Commands of the Redis port.",
        "command", "category", command=RESP_COMMANDS, category=RESP_CATEGORIES,
    ),
    _counter(
        "shale_resp_errors_total", "Commands of the Redis port that were refused.", "command", command=RESP_COMMANDS
    ),
    _counter(
        "shale_resp_failures_total", "Commands of the Redis port that failed through no fault of the client.",
        "command", "category", command=RESP_COMMANDS, category=RESP_CATEGORIES,
    ),
    _histogram(
        "shale_resp_command_duration_seconds", FAST_SECONDS,
        "Time from the arrival of commands of the Redis port to their replies; the same for commands sent together.",
        "category", category=RESP_CATEGORIES,
    ),
    _counter(
        "shale_resp_connections_total", "Connections to the Redis port.", "result", result=("accepted", "refused")
    ),
    _counter("shale_resp_protocol_errors_total", "Connections to the Redis port that sent what is no command."),
    _counter(
        "shale_resp_bytes_total", "Bytes through the Redis port.", "direction", direction=("read", "written")
    ),
    _gauge("shale_resp_connections_open", "Connections of the Redis port that are open."),
    _gauge("shale_resp_inflight_bytes", "Bytes of commands of the Redis port that have not run yet."),
)  # fmt: skip

_DB = (
    _counter("slatedb_db_requests_total", "Calls of the database by operation.", "op", op=DB_OPS),
    _counter("slatedb_db_write_ops_total", "Rows given to the writer, tombstones included."),
    _counter("slatedb_db_write_batches_total", "Batches given to the writer."),
    _counter("slatedb_db_backpressure_total", "How often a write found too much unflushed, once per check."),
    _counter("slatedb_db_l0_stalls_total", "Flushes that had to wait because L0 was full.", "type"),
    _gauge("slatedb_db_l0_stalled", "Whether flushes wait now because L0 is full: 1 or 0."),
    _counter("slatedb_db_immutable_memtable_flushes_total", "Frozen memtables whose SSTs are in the manifest."),
    _counter("slatedb_db_memtable_write_bytes_total", "Bytes of keys and values put into the memtable."),
    _counter("slatedb_db_l0_flush_bytes_total", "Bytes of L0 SSTs written by memtable flushes."),
    _gauge("slatedb_db_unflushed_bytes", "Bytes in the WAL buffer and the memtables."),
    _gauge("slatedb_db_unflushed_limit_bytes", "Unflushed bytes at which writes wait."),
    _gauge("slatedb_db_transaction_history_bytes", "Bytes of keys kept because of open transactions."),
    _gauge("slatedb_db_l0_ssts", "SSTs in L0, over all segments."),
    _gauge("slatedb_db_segment_max_l0_ssts", "SSTs in the L0 of the segment that has the most."),
    _gauge("slatedb_db_l0_limit_ssts", "SSTs in L0 at which flushes wait."),
    _gauge("slatedb_db_sorted_runs", "Sorted runs in the manifest."),
    _gauge("slatedb_db_sst_views", "Views of SSTs in the manifest."),
    _gauge("slatedb_db_ssts", "Distinct SSTs in the manifest."),
    _gauge("slatedb_db_external_dbs", "Databases whose SSTs the manifest refers to."),
    _counter("slatedb_db_sst_filter_positives_total", "Filters that did not rule an SST out.", "kind"),
    _counter("slatedb_db_sst_filter_negatives_total", "Filters that ruled an SST out.", "kind"),
    _counter("slatedb_db_sst_filter_false_positives_total", "Filters that passed an SST without the key.", "kind"),
    _counter("slatedb_merge_operator_operands_total", "Operands given to the merge operator.", "path"),
    _counter("slatedb_merge_operator_failures_total", "Operands that were kept because the operator refused.", "path"),
    _counter("slatedb_db_cache_accesses_total", "Look-ups in the cache.", "entry_kind", "result", result=HIT_MISS),
    _counter("slatedb_db_cache_errors_total", "Look-ups in the block cache that failed."),
    _histogram("slatedb_db_request_duration_seconds", FAST_SECONDS, "Time of a call of the database.", "op", op=DB_OPS),
    _histogram(
        "slatedb_db_durable_commit_duration_seconds", STORE_SECONDS, "Time from accepting a write to its durability."
    ),
    _gauge("slatedb_db_destroyed_timestamp_seconds", "When the database was destroyed; 0 while it lives."),
)

_WAL_AND_FLUSH = (
    _counter("slatedb_wal_flushes_total", "WAL files that became durable."),
    _counter("slatedb_wal_flush_requests_total", "Requests to flush the WAL buffer."),
    _counter("slatedb_wal_flush_bytes_total", "Bytes of WAL files that became durable."),
    _gauge("slatedb_wal_buffer_bytes", "Estimated bytes of rows that are in no WAL file yet."),
    _gauge("slatedb_wal_puts_in_flight", "WAL files that are being written now."),
    _gauge("slatedb_wal_last_id", "The id of the last durable WAL file."),
    _histogram("slatedb_wal_replay_duration_seconds", STORE_SECONDS, "Time of the WAL replay when a database opens."),
    _counter("slatedb_wal_replayed_objects_total", "WAL files read by replays."),
    _histogram("slatedb_wal_fence_duration_seconds", STORE_SECONDS, "Time until the WAL fence was written."),
    _counter("slatedb_wal_fence_retries_total", "WAL fences that met a file and moved on to the next id."),
    _counter("slatedb_memtable_flush_freezes_total", "Memtables that were frozen."),
    _counter("slatedb_memtable_flush_checkpoint_requests_total", "Checkpoints asked of the flusher."),
    _counter("slatedb_memtable_flush_flush_requests_total", "Flushes asked of the flusher."),
    _counter("slatedb_memtable_flush_l0_uploads_total", "L0 SSTs that were uploaded."),
    _counter("slatedb_memtable_flush_l0_flushes_total", "Manifest updates that added L0 SSTs."),
    _counter("slatedb_memtable_flush_manifest_refreshes_total", "Reads of the latest manifest by the flusher."),
)

_STORE = (
    _counter(
        "slatedb_object_store_requests_total", "Attempts sent to the object store.", *STORE_LABELS, op=STORE_OPS
    ),
    _counter(
        "slatedb_object_store_errors_total", "Attempts that failed.", *STORE_LABELS, "error_type", op=STORE_OPS
    ),
    _histogram(
        "slatedb_object_store_request_duration_seconds", STORE_SECONDS, "Time of one attempt.", *STORE_LABELS,
        op=STORE_OPS,
    ),
    _counter(
        "slatedb_object_store_bytes_total", "Bytes of objects that the object store sent and took.",
        "component", "store_type", "direction", direction=("read", "written"),
    ),
    _counter("slatedb_object_store_cache_part_hits_total", "Parts found in the cache of objects."),
    _counter("slatedb_object_store_cache_part_accesses_total", "Parts looked up in the cache of objects."),
    _counter("slatedb_object_store_cache_evicted_keys_total", "Keys dropped from the cache of objects."),
    _counter("slatedb_object_store_cache_evicted_bytes_total", "Bytes dropped from the cache of objects."),
    _gauge("slatedb_object_store_cache_keys", "Keys in the cache of objects."),
    _gauge("slatedb_object_store_cache_bytes", "Bytes in the cache of objects."),
    _gauge(
        "slatedb_object_store_write_failing_seconds",
        "For how long the store has not taken the write that fails the longest; 0: no write fails.",
        "component",
    ),
    _gauge("slatedb_object_store_up", "Whether the store answered the last probe, 0 before the first.", "component"),
    _gauge("slatedb_clock_skew_seconds", "The clock of the store minus ours, as last measured."),
    _counter("slatedb_corruption_total", "Objects that were found corrupt.", "resource"),
)  # fmt: skip

_BOUNDARIES_AND_MANIFEST = (
    _histogram(
        "slatedb_boundary_check_duration_seconds", STORE_SECONDS, "Time of one boundary check.", "resource",
        resource=SEQUENCED,
    ),
    _counter(
        "slatedb_boundary_checks_total", "Boundary checks; cached when the store said not modified.",
        "resource", "result", "cached", resource=SEQUENCED, result=("ok", "stale", "error"),
    ),
    _counter(
        "slatedb_boundary_advances_total", "Attempts to advance a boundary.", "resource", "result",
        resource=SEQUENCED, result=("ok", "noop", "conflict", "error"),
    ),
    _gauge("slatedb_boundary_value", "The boundary as last seen.", "resource", resource=SEQUENCED),
    _counter(
        "slatedb_boundary_rejected_writes_total", "Sequenced files that were created at or behind the boundary.",
        "resource", resource=SEQUENCED,
    ),
    _histogram(
        "slatedb_manifest_update_duration_seconds", STORE_SECONDS, "Time of a manifest update with all retries.",
        "component",
    ),
    _counter(
        "slatedb_manifest_update_attempts_total", "Attempts to commit a manifest.", "component", "result",
        result=("ok", "conflict", "fenced", "stale", "error"),
    ),
    _gauge("slatedb_manifest_bytes", "Size of the manifest that was last read or written."),
    _gauge("slatedb_manifest_id", "Id of the manifest that was last read or written."),
    _gauge("slatedb_manifest_written_timestamp_seconds", "When this process last committed a manifest."),
    _gauge("slatedb_manifest_writer_epoch", "The writer epoch in the manifest that was last seen."),
    _counter(
        "slatedb_sequenced_latest_reads_total", "Searches for the latest version of a sequenced file.",
        "resource", "result", resource=SEQUENCED, result=("hit", "cold", "list_fallback", "invalidated"),
    ),
    _histogram(
        "slatedb_sequenced_read_probes", PROBES, "Ids probed by one search for the latest version.", "resource",
        resource=SEQUENCED,
    ),
    _counter("slatedb_fenced_total", "Times that a component found a newer epoch.", "component"),
    _gauge("slatedb_checkpoints", "Checkpoints in the latest manifest.", "state"),
    _gauge("slatedb_checkpoint_oldest_timestamp_seconds", "When the oldest checkpoint was made; 0: none.", "state"),
    _counter(
        "slatedb_checkpoint_operations_total", "Changes of checkpoints; expire is what the gc removed.",
        "component", "op", "result", op=("create", "refresh", "delete", "expire"), result=("ok", "error"),
    ),
    _gauge("slatedb_reader_visible_timestamp_seconds", "When the newest state that the reader serves was read."),
    _gauge("slatedb_reader_memtable_bytes", "Bytes of replayed WAL files in the reader."),
    _gauge("slatedb_reader_poll_interval_seconds", "Time between two polls of a reader; 0 while it does not poll."),
    _counter("slatedb_reader_lease_lost_total", "Times that a reader found its checkpoint gone."),
    _counter("slatedb_reader_reestablish_total", "Times that a reader made a new checkpoint after losing one."),
)  # fmt: skip

_COMPACTION = (
    _gauge("slatedb_compactor_epoch", "The compactor epoch that this process holds or last saw."),
    _gauge("slatedb_compactor_last_success_timestamp_seconds", "When a compaction was last committed."),
    _gauge("slatedb_compactor_running", "Compactions that run now.", "worker"),
    _gauge("slatedb_compactor_inflight_input_bytes", "Estimated source bytes of the active jobs."),
    _gauge("slatedb_compactor_backlog_jobs", "Scheduled jobs that no worker has claimed."),
    _gauge("slatedb_compactor_backlog_bytes", "Estimated source bytes of the jobs that no worker has claimed."),
    _counter("slatedb_compactor_output_bytes_total", "Bytes of the data parts of output SSTs.", "worker"),
    _counter("slatedb_compactor_ssts_written_total", "Output SSTs that were written.", "worker"),
    _counter("slatedb_compactor_jobs_claimed_total", "Jobs that a worker claimed."),
    _counter("slatedb_compactor_l0_promotions_total", "L0s of unions made by SlateDB that became runs."),
    _counter("slatedb_compactor_jobs_reclaimed_total", "Jobs taken back from a worker that went silent."),
    _counter("slatedb_compactor_jobs_failed_total", "Jobs ended as Failed: no attempt can help, or is left."),
    _counter("slatedb_compactor_expired_entries_total", "Rows dropped because they had expired.", "entry_type"),
    _gauge("slatedb_compactor_worker_up", "Whether a worker of this process polls the database: 1 or 0."),
    _gauge("slatedb_compactor_worker_heartbeat_timestamp_seconds", "When the worker last wrote a heartbeat.", "worker"),
    _gauge(
        "slatedb_compactor_worker_heartbeat_timeout_seconds", "Time without a heartbeat after which a job is reclaimed."
    ),
    _histogram(
        "slatedb_compaction_duration_seconds", JOB_SECONDS, "Time from claim to end of a job.", "size_class", "result",
        result=OUTCOMES,
    ),
    _counter("slatedb_compaction_input_bytes_total", "Bytes read from the sources of compactions."),
    _gauge("slatedb_compaction_progress_ratio", "Share of the largest running job that is done."),
    _gauge("slatedb_compaction_phase", "Running jobs by phase.", "phase"),
    _counter("slatedb_compaction_ssts_processed_total", "Source SSTs that were read to their end."),
    _gauge("slatedb_compaction_inflight_input_ssts", "Source SSTs of all running jobs."),
    _gauge("slatedb_compaction_estimated_completion_timestamp_seconds", "When the largest running job should end."),
    _counter("slatedb_compaction_recovered_jobs_total", "Jobs resumed from persisted progress."),
    _histogram(
        "slatedb_compaction_recovery_duration_seconds", STORE_SECONDS, "Time from taking a job over to its first row."
    ),
    _counter("slatedb_compaction_recovered_bytes_total", "Output bytes of earlier attempts that were kept."),
    _counter(
        "slatedb_compaction_rework_bytes_total",
        "Bytes beyond the last output SST of attempts that ended early; those of killed workers are estimated.",
    ),
    _counter("slatedb_compaction_errors_total", "Jobs that failed.", "error_type", "retryable"),
    _counter(
        "slatedb_compactions_writes_total", "Attempts to write the compactions file.", "result",
        result=("ok", "conflict", "fenced", "error"),
    ),
)  # fmt: skip

_GC = (
    _counter("slatedb_gc_runs_total", "Passes that ended.", "resource", "result", result=("ok", "error")),
    _counter("slatedb_gc_deleted_objects_total", "Objects deleted and clones detached.", "resource"),
    _counter("slatedb_gc_deleted_bytes_total", "Bytes of deleted objects.", "resource"),
    _gauge(
        "slatedb_gc_versions", "Versions that exist, before and after a pass.", "resource", resource=SEQUENCED
    ),
    _gauge("slatedb_gc_pending_deletes", "Objects that are due for deletion and not yet deleted."),
    _counter("slatedb_gc_detached_clones_total", "Clones that were detached from their parents."),
    _histogram("slatedb_gc_run_duration_seconds", JOB_SECONDS, "Time of one pass.", "resource"),
    _gauge("slatedb_gc_last_success_timestamp_seconds", "When a pass last ended well.", "resource"),
    _gauge("slatedb_gc_candidates", "Objects that the last plan would delete.", "resource"),
    _gauge("slatedb_gc_cutoff_timestamp_seconds", "The terms of the cut-off for SSTs, and the result.", "term"),
    _counter("slatedb_gc_errors_total", "Errors of passes.", "resource", "error_type"),
    _gauge("slatedb_gc_interval_seconds", "Time between two passes; 0 while the task is disabled.", "resource"),
    _gauge("slatedb_backup_newest_timestamp_seconds", "When the newest complete backup began; 0: there is none."),
    _gauge("slatedb_backup_max_age_seconds", "The setting backup.max_age; 0 while backups are not watched."),
    _counter("slatedb_two_phase_recovered_total", "Two-phase writes that were completed for a dead process."),
    _counter("slatedb_two_phase_orphans_deleted_total", "Staged objects of dead processes that were deleted."),
    _gauge("slatedb_two_phase_uncommitted", "Staged objects that are not committed."),
    _gauge("slatedb_transactional_store_up", "Whether the transactional store answered the last recovery: 1 or 0."),
)  # fmt: skip

CATALOGUE: dict[str, MetricSpec] = {
    spec.name: spec
    for spec in (*_PROCESS, *_DB, *_WAL_AND_FLUSH, *_STORE, *_BOUNDARIES_AND_MANIFEST, *_COMPACTION, *_GC)
}
