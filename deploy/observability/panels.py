"""The dashboards: which panels, with which queries.  ``$all`` stands for the variables of the dashboard."""

from typing import NamedTuple


class Panel(NamedTuple):
    """A panel; ``queries`` are pairs of a legend and an expression, ``threshold`` is the one of its alert."""

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    threshold: float | None = None
    with_db: bool = True


class Row(NamedTuple):
    """Panels with one subject."""

    title: str
    panels: tuple[Panel, ...]


class Dashboard(NamedTuple):
    """One page."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]


def rate(metric: str, by: str, more: str = "") -> str:
    """What happens per second, the twelve largest."""
    return f"topk(12, sum by ({by}) (rate({metric}{{$all{more}}}[$__rate_interval])))"


def quantiles(metric: str, by: str, more: str = "") -> tuple[tuple[str, str], ...]:
    """The median, the 95th and the 99th percentile."""
    legend = " ".join(f"{{{{{name}}}}}" for name in by.split(", "))
    inner = f"sum by ({by}, le) (rate({metric}_bucket{{$all{more}}}[$__rate_interval]))"
    return tuple((f"{legend} p{q}", f"topk(12, histogram_quantile(0.{q}, {inner}))") for q in (50, 95, 99))


def stat(title: str, description: str, unit: str, query: str, threshold: float | None = None) -> Panel:
    """One number for each database."""
    return Panel(title, description, unit, (("{{db}}", query),), "stat", threshold)


def one(title: str, description: str, unit: str, legend: str, query: str, threshold: float | None = None) -> Panel:
    """A panel of one query."""
    return Panel(title, description, unit, ((legend, query),), threshold=threshold)


COMMIT = "slatedb_db_durable_commit_duration_seconds"
CALL = "slatedb_db_request_duration_seconds"
L0_USE = "max by (db) (slatedb_db_segment_max_l0_ssts{$all} / slatedb_db_l0_limit_ssts{$all})"
UNFLUSHED_USE = "max by (db) (slatedb_db_unflushed_bytes{$all} / slatedb_db_unflushed_limit_bytes{$all})"
LAG = "time() - min by (db, instance) (slatedb_reader_visible_timestamp_seconds{$all} > 0)"
COMMIT_P99 = f"histogram_quantile(0.99, sum by (db, le) (rate({COMMIT}_bucket{{$all}}[$__rate_interval])))"
READ_P99 = f'histogram_quantile(0.99, sum by (db, le) (rate({CALL}_bucket{{$all, op="get"}}[$__rate_interval])))'
SINCE_COMPACTION = "time() - max by (db) (slatedb_compactor_last_success_timestamp_seconds{$all} > 0)"
SINCE_GC = "time() - min by (db) (slatedb_gc_last_success_timestamp_seconds{$all} > 0)"

HEADLINES = Row(
    "Headlines",
    (
        stat("Commit p99", "SlateDBCommitLatencyBudgetBurn; 0.5 s is the objective.", "s", COMMIT_P99, 0.5),
        stat("Lookup p99", "SlateDBReadLatencyBudgetBurn; 0.1 s is the objective.", "s", READ_P99, 0.1),
        stat("L0 in use", "SlateDBL0NearLimit from 80 % on.", "percentunit", L0_USE, 0.8),
        stat("Unflushed in use", "SlateDBUnflushedNearLimit from 90 % on.", "percentunit", UNFLUSHED_USE, 0.9),
        stat("Since the last compaction", "SlateDBCompactionBehind while L0 fills.", "s", SINCE_COMPACTION),
        stat("Since the last collection", "SlateDBGCNotRunning after an hour.", "s", SINCE_GC, 3600),
    ),
)
HTTP = Row(
    "HTTP",
    (
        one("Requests", "By route.", "reqps", "{{db}} {{route}}", rate("shale_http_requests_total", "db, route")),
        one(
            "Errors",
            "ShaleHTTPErrors: 5xx.",
            "reqps",
            "{{db}} {{route}}",
            rate("shale_http_requests_total", "db, route", ', status="5xx"'),
        ),
        Panel(
            "Time of an answer",
            "To its end: a scan takes as long as it is read.",
            "s",
            quantiles("shale_http_request_duration_seconds", "route"),
        ),
        one(
            "In flight",
            "`http.max_concurrent_requests` is the limit.",
            "short",
            "{{db}} {{instance}}",
            "topk(12, shale_http_requests_inflight{$all})",
        ),
    ),
)
RESP = Row(
    "The Redis port",
    (
        one("Commands", "By name.", "ops", "{{db}} {{command}}", rate("shale_resp_commands_total", "db, command")),
        one(
            "Refused commands",
            "ShaleRESPErrors.",
            "ops",
            "{{db}} {{command}}",
            rate("shale_resp_errors_total", "db, command"),
        ),
        one(
            "Open connections",
            "`resp.max_connections` is the limit.",
            "short",
            "{{db}} {{instance}}",
            "topk(12, shale_resp_connections_open{$all})",
        ),
        one(
            "New connections",
            "ShaleRESPConnectionsRefused.",
            "ops",
            "{{db}} {{result}}",
            rate("shale_resp_connections_total", "db, result"),
        ),
        one(
            "Bytes", "Read and written.", "Bps", "{{db}} {{direction}}", rate("shale_resp_bytes_total", "db, direction")
        ),
        one(
            "Waiting",
            "Bytes of commands that have not run yet.",
            "bytes",
            "{{db}} {{instance}}",
            "topk(12, shale_resp_inflight_bytes{$all})",
        ),
        one("Protocol errors", "What is no command.", "ops", "{{db}}", rate("shale_resp_protocol_errors_total", "db")),
    ),
)
CALLS = Row(
    "Calls of the database",
    (
        one("Rate", "By operation.", "ops", "{{db}} {{op}}", rate("slatedb_db_requests_total", "db, op")),
        Panel("Duration", "From call to result.", "s", quantiles(CALL, "op")),
        Panel(
            "Durable commit",
            "From accepting a write to its durability; 0.5 s is the objective.",
            "s",
            quantiles(COMMIT, "db"),
            threshold=0.5,
        ),
    ),
)
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
            "sum by (db) (rate(slatedb_object_store_cache_part_hits_total{$all}[$__rate_interval])) / (sum by (db) (rate(slatedb_object_store_cache_part_accesses_total{$all}[$__rate_interval])) > 0)",
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


def process(title: str, description: str, unit: str, legend: str, query: str, threshold: float | None = None) -> Panel:
    """A panel of metrics that have no ``db``."""
    return Panel(title, description, unit, ((legend, query),), threshold=threshold, with_db=False)


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
            "SlateDBWriterDown and its like when nobody is active.",
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
FLEET = Row(
    "All databases",
    (
        one("Writes", "Rows per second.", "ops", "{{db}}", rate("slatedb_db_write_ops_total", "db")),
        one("Calls", "Per second.", "ops", "{{db}}", rate("slatedb_db_requests_total", "db")),
        one("Commit p99", "0.5 s is the objective.", "s", "{{db}}", f"topk(12, {COMMIT_P99})", 0.5),
        one("L0 in use", "SlateDBL0NearLimit from 80 % on.", "percentunit", "{{db}}", f"topk(12, {L0_USE})", 0.8),
        one(
            "Unflushed in use",
            "SlateDBUnflushedNearLimit from 90 % on.",
            "percentunit",
            "{{db}}",
            f"topk(12, {UNFLUSHED_USE})",
            0.9,
        ),
        one("Lag of readers", "SlateDBReaderStale beyond 50 s.", "s", "{{db}} {{instance}}", f"topk(12, {LAG})", 50),
        one(
            "Corrupt objects",
            "SlateDBCorruption at the first one.",
            "short",
            "{{db}} {{resource}}",
            "sum by (db, resource) (increase(slatedb_corruption_total{$all}[$__rate_interval]))",
            1,
        ),
        one("Store requests", "What costs.", "reqps", "{{db}}", rate("slatedb_object_store_requests_total", "db")),
    ),
)

DASHBOARDS = (
    Dashboard("overview", "Overview", "One database, from headlines to the store.", (HEADLINES, HTTP, CALLS, SHAPE, COORDINATION, STORE)),
    Dashboard("fleet", "Fleet", "All databases beside each other.", (FLEET,)),
    Dashboard("writer", "Writer", "Writes and reads of the writer, and its ports.", (HEADLINES, WRITES, CALLS, READS, HTTP, RESP)),
    Dashboard("reader", "Reader", "How old readers are, and what they serve.", (READER, READS, HTTP)),
    Dashboard("compaction", "Compaction", "Jobs, workers and what they leave.", (COMPACTION, SHAPE)),
    Dashboard("gc", "GC and boundaries", "What is collected, and what holds it back.", (GC, COORDINATION)),
    Dashboard("store", "Object store and cost", "Requests, errors, latency.", (STORE,)),
    Dashboard("runtime", "Runtime", "The Python processes.", (RUNTIME,)),
)  # fmt: skip
