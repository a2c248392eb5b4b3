"""Series that fire each alert and series that must not, in the notation of `promtool test rules`."""

from typing import NamedTuple

_CALL, _COMMAND = "slatedb_db_request_duration_seconds", "shale_resp_command_duration_seconds"
_RESP_READ, _RESP_WRITE = 'category="read"', 'category="write"'


class Case(NamedTuple):
    """Series that fire an alert at a time, and similar series that do not."""

    at: str
    firing: dict[str, str]
    quiet: dict[str, str]
    step: str = "1m"


def _role(component: str, metric: str, *, labels: str = "") -> Case:
    """Return the case of a daemon that is gone, and of one that works."""
    info = f'shale_daemon_info{{db="a",component="{component}",job="j",instance="i"}}'
    role, own = 'shale_role{role="active",job="j",instance="i"}', f'{metric}{{db="a",job="j",instance="i"{labels}}}'
    return Case(
        "60m",
        {info: "1x5 stale", role: "1x5 stale", own: "1x5 stale"},
        {info: "1x90", role: "1x90", own: "1x90"},
    )


def _never_ready(component: str) -> Case:
    """Return the case of a daemon that serves its metrics and does not get ready, for example without a store."""
    info = f'shale_daemon_info{{db="a",component="{component}",job="j",instance="i"}}'
    return Case(
        "60m",
        {info: "1x90", 'shale_role{role="active",job="j",instance="i"}': "0x90"},
        {'shale_daemon_info{db="a",component="other",job="j",instance="i"}': "1x90"},
    )


def _exit(code: int, *, other: int) -> Case:
    """Return the case of a daemon that shows an exit code for one scrape."""
    name = 'shale_exit_code{db="a",component="writer",job="j",instance="i"}'
    return Case("12m", {name: f"0x4 {code}x1 stale"}, {name: f"0x4 {other}x1 stale"})


def _terminated(code: int, *, other: int) -> Case:
    """Return the case of a container that Kubernetes restarted, and of one that ended with another code."""
    labels = 'namespace="n",pod="p",container="writer"'
    ended = f"kube_pod_container_status_last_terminated_exitcode{{{labels}}}"
    restarts = f"kube_pod_container_status_restarts_total{{{labels}}}"
    return Case("12m", {ended: f"{code}x20", restarts: "3x8 4x12"}, {ended: f"{other}x20", restarts: "3x8 4x12"})


def _backup_jobs(*, failed_at: int, succeeded_at: int | None) -> Case:
    """Return the case of a backup whose last job failed, and of one that succeeded after a failed job."""
    cronjob, job = 'namespace="n",cronjob="a-shale-backup"', 'namespace="n",job_name="a-shale-backup-29001"'
    failed = {
        f"kube_job_status_start_time{{{job}}}": f"{failed_at}x70",
        f'kube_job_failed{{{job},condition="true"}}': "1x70",
        f"kube_cronjob_created{{{cronjob}}}": "10x70",
        'shale_daemon_info{namespace="n",db="a",component="writer"}': "1x70",
    }
    last = f"kube_cronjob_status_last_successful_time{{{cronjob}}}"
    before = {} if succeeded_at is None else {last: f"{succeeded_at}x70"}
    return Case("60h", failed | before, failed | {last: f"{failed_at + 60}x70"}, step="1h")


def _backup_schedule(*, succeeded_at: int | None) -> Case:
    """Return the case of a daily backup without success for more than a day, and of others that are well."""
    cronjob = 'namespace="n",cronjob="a-shale-backup"'
    other = 'namespace="other",cronjob="postgres-backup"'
    last = "kube_cronjob_status_last_successful_time"
    common = {
        f"kube_cronjob_created{{{cronjob}}}": "10x70",
        f"kube_cronjob_status_last_schedule_time{{{cronjob}}}": "0x23 86400x23 172800x24",
        f"kube_cronjob_next_schedule_time{{{cronjob}}}": "86400x23 172800x23 259200x24",
        'shale_daemon_info{namespace="n",db="a",component="writer"}': "1x70",
    }
    failing = {} if succeeded_at is None else {f"{last}{{{cronjob}}}": f"{succeeded_at}x70"}
    well = {
        f"{last}{{{cronjob}}}": "600x23 87000x23 173400x24",
        f"{last}{{{other}}}": "600x70",
        f"kube_cronjob_status_last_schedule_time{{{other}}}": "0x70",
        f"kube_cronjob_next_schedule_time{{{other}}}": "60x70",
    }
    return Case("60h", common | failing, common | well, step="1h")


def _failed_writes() -> Case:
    """Return the case of Redis clients whose writes fail, and of clients that make mistakes."""
    calls = 'shale_resp_commands_total{db="a",instance="i",command="set",category="write"}'
    failures = 'shale_resp_failures_total{db="a",instance="i",command="set",category="write"}'
    mistakes = 'shale_resp_errors_total{db="a",instance="i",command="set"}'
    return Case(
        "110m",
        {calls: "0+100x120", failures: "0+5x120", mistakes: "0+5x120"},
        {calls: "0+100x120", failures: "0x120", mistakes: "0+50x120"},
    )


def _failed_calls(at: str) -> Case:
    """Return the case of writes that all fail beside many lookups that succeed, and of mistakes of clients."""
    calls = 'shale_http_requests_total{{db="a",route="kv",category="{}",status="{}"}}'
    lookups = {calls.format("read", "2xx"): "0+10000x120"}
    return Case(
        at,
        lookups | {calls.format("write", "5xx"): "0+5x120", calls.format("write", "2xx"): "0x120"},
        lookups | {calls.format("write", "4xx"): "0+5x120", calls.format("write", "2xx"): "0+95x120"},
    )


def _slow(at: str, counted: str, labels: str, le: str) -> Case:
    """Return the case of a histogram of which a tenth, or all, is below a bound."""
    total, fast = f'{counted}_count{{db="a",{labels}}}', f'{counted}_bucket{{db="a",{labels},le="{le}"}}'
    return Case(at, {fast: "0+10x120", total: "0+100x120"}, {fast: "0+100x120", total: "0+100x120"})


def _slow_beside_fast(at: str, labels: str, le: str) -> Case:
    """Return the case of slow commands of Redis clients beside calls of others that are fast, and of fast ones."""
    fast = _slow(at, _CALL, 'op="get"' if labels == _RESP_READ else 'op="put"', le).quiet
    slow = _slow(at, _COMMAND, labels, le)
    return Case(at, fast | slow.firing, fast | slow.quiet)


CASES = {
    "SlateDBWriterDown": _role("writer", "slatedb_db_unflushed_limit_bytes"),
    "SlateDBCompactorDown": _role("compactor", "slatedb_compactor_epoch"),
    "SlateDBGCDown": _role("gc", "slatedb_gc_interval_seconds", labels=',resource="wal"'),
    "SlateDBReaderDown": _role("reader", "slatedb_reader_visible_timestamp_seconds"),
    "ShaleInstanceDown": Case(
        "30m",
        {
            'shale_daemon_info{db="a",component="reader",job="r",instance="i1"}': "1x40",
            'shale_daemon_info{db="a",component="reader",job="r",instance="i2"}': "1x5 stale",
            'shale_role{role="active",job="r",instance="i1"}': "1x40",
            'shale_role{role="active",job="r",instance="i2"}': "1x5 stale",
            'up{job="r",instance="i1"}': "1x40",
            'up{job="r",instance="i2"}': "1x5 0x40",
        },
        {
            'shale_daemon_info{db="a",component="reader",job="r",instance="i1"}': "1x40",
            'shale_daemon_info{db="a",component="reader",job="r",instance="i2"}': "1x5 stale",
            'shale_role{role="standby",job="r",instance="i1"}': "1x40",
            'up{job="r",instance="i1"}': "1x40",
            'up{job="r",instance="i2"}': "1x5 stale",
        },
    ),
    "ShaleCrashLoop": Case(
        "20m",
        {'kube_pod_container_status_restarts_total{namespace="n",pod="p",container="writer"}': "0x5 1x2 2x3 3x4 4x10"},
        {'kube_pod_container_status_restarts_total{namespace="n",pod="p",container="writer"}': "4x8 5x20"},
    ),
    "ShaleProcessFailed": _exit(78, other=69),
    "SlateDBProtocolPanic": _exit(70, other=65),
    "SlateDBWriteAvailabilityBudgetBurn": _failed_calls("100m"),
    "SlateDBWriteAvailabilityBudgetBurnSlow": _failed_writes(),
    "SlateDBObjectStoreDown": Case(
        "10m",
        {'slatedb_object_store_up{db="a",component="writer",job="j",instance="i"}': "1x2 0x20"},
        {'slatedb_object_store_up{db="a",component="writer",job="j",instance="i"}': "0 0 1 0 0 1 0 0 1 0 0 1 0"},
    ),
    "SlateDBObjectStoreWritesFailing": Case(
        "5m",
        {
            'slatedb_object_store_write_failing_seconds{db="a",component="writer",job="j",instance="i"}': "0 20 50 80 110x5"
        },
        {
            'slatedb_object_store_write_failing_seconds{db="a",component="writer",job="j",instance="i"}': "0 40 0 45 0 40 0x5"
        },
    ),
    "SlateDBFencingFlap": Case(
        "15m",
        {f'slatedb_manifest_writer_epoch{{db="a",instance="i{n}"}}': f"_x{2 * n} {n + 1}x1 stale" for n in range(8)},
        {
            'slatedb_manifest_writer_epoch{db="a",instance="i1"}': "1x20",
            'slatedb_manifest_writer_epoch{db="a",instance="i2"}': "_x10 2x10",
            'slatedb_compactor_epoch{db="a"}': "4x20",
        },
    ),
    "SlateDBWorkerHeartbeatStale": Case(
        "10m",
        {
            'slatedb_compactor_worker_heartbeat_timestamp_seconds{db="a",worker="w"}': "0x20",
            'slatedb_compactor_worker_heartbeat_timeout_seconds{db="a",instance="c"}': "30x20",
            'slatedb_compactor_running{db="a",worker="w"}': "1x20",
        },
        {
            'slatedb_compactor_worker_heartbeat_timestamp_seconds{db="a",worker="w"}': "0x20",
            'slatedb_compactor_worker_heartbeat_timeout_seconds{db="a",instance="c"}': "600x20",
            'slatedb_compactor_running{db="a",worker="w"}': "1x20",
        },
    ),
    "SlateDBGCNotRunning": Case(
        "80m",
        {
            'slatedb_gc_last_success_timestamp_seconds{db="a",resource="wal"}': "60x90",
            'slatedb_gc_interval_seconds{db="a",resource="wal"}': "600x90",
        },
        {
            'slatedb_gc_last_success_timestamp_seconds{db="a",resource="wal"}': "60x90",
            'slatedb_gc_interval_seconds{db="a",resource="wal"}': "3600x90",
        },
    ),
    "SlateDBBackupOld": Case(
        "60h",
        {
            'slatedb_backup_newest_timestamp_seconds{db="a",job="j",instance="i"}': "86400x70",
            'slatedb_backup_max_age_seconds{db="a",job="j",instance="i"}': "93600x70",
        },
        {
            'slatedb_backup_newest_timestamp_seconds{db="a",job="j",instance="i"}': "86400x24 172800x50",
            'slatedb_backup_max_age_seconds{db="a",job="j",instance="i"}': "93600x70",
            'slatedb_backup_newest_timestamp_seconds{db="b",job="j",instance="i"}': "0x70",
            'slatedb_backup_max_age_seconds{db="b",job="j",instance="i"}': "0x70",
            'shale_start_timestamp_seconds{job="j",instance="i"}': "0x70",
        },
        step="1h",
    ),
    "SlateDBBackupFailed": _backup_jobs(failed_at=200_000, succeeded_at=100_000),
    "SlateDBReaderStale": Case(
        "15m",
        {
            'slatedb_reader_visible_timestamp_seconds{db="a",job="r",instance="i"}': "60x30",
            'slatedb_reader_poll_interval_seconds{db="a",job="r",instance="i"}': "10x30",
            'slatedb_db_write_ops_total{db="a",job="w",instance="w"}': "0+60x30",
        },
        {
            'slatedb_reader_visible_timestamp_seconds{db="a",job="r",instance="i"}': "60x30",
            'slatedb_reader_poll_interval_seconds{db="a",job="r",instance="i"}': "600x30",
            'slatedb_db_write_ops_total{db="a",job="w",instance="w"}': "0+60x30",
        },
    ),
    "SlateDBMultipleWriters": Case(
        "10m",
        {
            'slatedb_db_unflushed_limit_bytes{db="a",job="j",instance="i1"}': "1x30",
            'slatedb_db_unflushed_limit_bytes{db="a",job="j",instance="i2"}': "1x30",
            'shale_role{role="active",job="j",instance="i1"}': "1x30",
            'shale_role{role="active",job="j",instance="i2"}': "1x30",
        },
        {
            'slatedb_db_unflushed_limit_bytes{db="a",job="j",instance="i1"}': "1x30",
            'slatedb_db_unflushed_limit_bytes{db="a",job="j",instance="i2"}': "1x30",
            'shale_role{role="active",job="j",instance="i1"}': "1x30",
            'shale_role{role="active",job="j",instance="i2"}': "0x30",
        },
    ),
    "SlateDBMultipleCompactors": Case(
        "10m",
        {
            'slatedb_compactor_last_success_timestamp_seconds{db="a",job="j",instance="i1"}': "1x30",
            'slatedb_compactor_last_success_timestamp_seconds{db="a",job="j",instance="i2"}': "1x30",
            'shale_role{role="active",job="j",instance="i1"}': "1x30",
            'shale_role{role="active",job="j",instance="i2"}': "1x30",
        },
        {
            'slatedb_compactor_last_success_timestamp_seconds{db="a",job="j",instance="i1"}': "1x30",
            'slatedb_compactor_last_success_timestamp_seconds{db="a",job="j",instance="i2"}': "1x30",
            'shale_role{role="active",job="j",instance="i1"}': "1x30",
            'shale_role{role="active",job="j",instance="i2"}': "0x30",
        },
    ),
    "SlateDBFenced": Case(
        "10m",
        {'slatedb_fenced_total{db="a",component="writer"}': "0x5 1x10"},
        {'slatedb_fenced_total{db="a",component="writer"}': "1x15"},
    ),
    "SlateDBCommitLatencyBudgetBurn": Case(
        "100m",
        {
            'slatedb_db_durable_commit_duration_seconds_bucket{db="a",le="0.5"}': "0+10x120",
            'slatedb_db_durable_commit_duration_seconds_count{db="a"}': "0+100x120",
        },
        {
            'slatedb_db_durable_commit_duration_seconds_bucket{db="a",le="0.5"}': "0+100x120",
            'slatedb_db_durable_commit_duration_seconds_count{db="a"}': "0+100x120",
        },
    ),
    "SlateDBCommitLatencyBudgetBurnSlow": Case(
        "110m",
        {
            'slatedb_db_durable_commit_duration_seconds_bucket{db="a",le="0.5"}': "0+10x120",
            'slatedb_db_durable_commit_duration_seconds_count{db="a"}': "0+100x120",
        },
        {
            'slatedb_db_durable_commit_duration_seconds_bucket{db="a",le="0.5"}': "0+100x120",
            'slatedb_db_durable_commit_duration_seconds_count{db="a"}': "0+100x120",
        },
    ),
    "SlateDBReadLatencyBudgetBurn": _slow("100m", _CALL, 'op="get"', "0.1"),
    "SlateDBReadLatencyBudgetBurnSlow": _slow("110m", _CALL, 'op="get"', "0.1"),
    "SlateDBWriteLatencyBudgetBurn": _slow("100m", _CALL, 'op="put"', "0.5"),
    "SlateDBWriteLatencyBudgetBurnSlow": _slow("110m", _CALL, 'op="write"', "0.5"),
    "SlateDBWriteErrors": _failed_calls("20m"),
    "SlateDBWALFlushFailing": Case(
        "10m",
        {
            'slatedb_object_store_errors_total{db="a",component="writer",op="put",error_type="network"}': "0+5x20",
            'slatedb_wal_flushes_total{db="a"}': "7x20",
            'slatedb_wal_buffer_bytes{db="a"}': "1000x20",
        },
        {
            'slatedb_object_store_errors_total{db="a",component="writer",op="put",error_type="network"}': "0+5x20",
            'slatedb_wal_flushes_total{db="a"}': "7+3x20",
            'slatedb_wal_buffer_bytes{db="a"}': "1000x20",
        },
    ),
    "SlateDBBackpressure": Case(
        "25m", {'slatedb_db_backpressure_total{db="a"}': "0+3x30"}, {'slatedb_db_backpressure_total{db="a"}': "3x30"}
    ),
    "SlateDBUnflushedNearLimit": Case(
        "10m",
        {'slatedb_db_unflushed_bytes{db="a"}': "95x20", 'slatedb_db_unflushed_limit_bytes{db="a"}': "100x20"},
        {'slatedb_db_unflushed_bytes{db="a"}': "85x20", 'slatedb_db_unflushed_limit_bytes{db="a"}': "100x20"},
    ),
    "SlateDBL0NearLimit": Case(
        "10m",
        {'slatedb_db_segment_max_l0_ssts{db="a"}': "7x20", 'slatedb_db_l0_limit_ssts{db="a"}': "8x20"},
        {'slatedb_db_segment_max_l0_ssts{db="a"}': "6x20", 'slatedb_db_l0_limit_ssts{db="a"}': "8x20"},
    ),
    "SlateDBL0Stalled": Case(
        "12m",
        {'slatedb_db_l0_stalls_total{db="a",type="num_ssts"}': "0+1x20"},
        {'slatedb_db_l0_stalls_total{db="a",type="num_ssts"}': "5x20"},
    ),
    "SlateDBManifestConflicts": Case(
        "40m",
        {
            'slatedb_manifest_update_attempts_total{db="a",result="conflict"}': "0+5x60",
            'slatedb_manifest_update_attempts_total{db="a",result="ok"}': "0+5x60",
        },
        {
            'slatedb_manifest_update_attempts_total{db="a",result="conflict"}': "0+1x60",
            'slatedb_manifest_update_attempts_total{db="a",result="ok"}': "0+9x60",
        },
    ),
    "SlateDBManifestChurn": Case(
        "80m", {'slatedb_manifest_id{db="a"}': "0+30x90"}, {'slatedb_manifest_id{db="a"}': "0+5x90"}
    ),
    "SlateDBManifestVersionsGrowing": Case(
        "80m",
        {'slatedb_gc_versions{db="a",resource="manifest"}': "1500x90"},
        {'slatedb_gc_versions{db="a",resource="manifest"}': "900x90"},
    ),
    "SlateDBManifestLarge": Case(
        "80m", {'slatedb_manifest_bytes{db="a"}': "20000000x90"}, {'slatedb_manifest_bytes{db="a"}': "2000000x90"}
    ),
    "SlateDBBoundaryAdvanceFailing": Case(
        "35m",
        {
            'slatedb_boundary_advances_total{db="a",resource="manifest",result="error"}': "0+1x40",
            'slatedb_boundary_advances_total{db="a",resource="manifest",result="ok"}': "3x40",
        },
        {
            'slatedb_boundary_advances_total{db="a",resource="manifest",result="error"}': "0+1x40",
            'slatedb_boundary_advances_total{db="a",resource="manifest",result="ok"}': "0+1x40",
        },
    ),
    "SlateDBStaleWriteRejected": Case(
        "12m",
        {'slatedb_boundary_rejected_writes_total{db="a",resource="manifest"}': "0x5 1x15"},
        {'slatedb_boundary_rejected_writes_total{db="a",resource="manifest"}': "1x20"},
    ),
    "SlateDBCompactionStuck": Case(
        "45m",
        {
            'slatedb_compactor_running{db="a",worker="w"}': "1x60",
            'slatedb_compactor_output_bytes_total{db="a",worker="w"}': "5x60",
            'slatedb_compaction_ssts_processed_total{db="a"}': "2x60",
        },
        {
            'slatedb_compactor_running{db="a",worker="w"}': "1x60",
            'slatedb_compactor_output_bytes_total{db="a",worker="w"}': "5+100x60",
            'slatedb_compaction_ssts_processed_total{db="a"}': "2x60",
        },
    ),
    "SlateDBCompactionBehind": Case(
        "80m",
        {
            'slatedb_db_l0_ssts{db="a"}': "6x90",
            'slatedb_db_l0_limit_ssts{db="a"}': "8x90",
            'slatedb_compactor_last_success_timestamp_seconds{db="a",job="c"}': "0x90",
        },
        {
            'slatedb_db_l0_ssts{db="a"}': "6x90",
            'slatedb_db_l0_limit_ssts{db="a"}': "8x90",
            'slatedb_compactor_last_success_timestamp_seconds{db="a",job="c"}': "0+60x90",
        },
    ),
    "SlateDBCompactionErrors": Case(
        "50m",
        {
            'slatedb_compaction_duration_seconds_count{db="a",result="failed"}': "0+1x60",
            'slatedb_compaction_duration_seconds_count{db="a",result="completed"}': "0+1x60",
        },
        {
            'slatedb_compaction_duration_seconds_count{db="a",result="failed"}': "0x60",
            'slatedb_compaction_duration_seconds_count{db="a",result="completed"}': "0+1x60",
        },
    ),
    "SlateDBCompactionFailed": Case(
        "30m",
        {'slatedb_compactor_jobs_failed_total{db="a"}': "0x10 1x50"},
        {'slatedb_compactor_jobs_failed_total{db="a"}': "3x60"},
    ),
    "SlateDBJobsReclaimed": Case(
        "65m",
        {'slatedb_compactor_jobs_reclaimed_total{db="a"}': "0+1x70"},
        {'slatedb_compactor_jobs_reclaimed_total{db="a"}': "0x30 1x40"},
    ),
    "SlateDBGarbageGrowing": Case(
        "30h",
        {
            'slatedb_gc_candidates{db="a",resource="wal"}': "0+60x40",
            'slatedb_gc_deleted_objects_total{db="a",resource="wal"}': "4x40",
        },
        {
            'slatedb_gc_candidates{db="a",resource="wal"}': "0+60x40",
            'slatedb_gc_deleted_objects_total{db="a",resource="wal"}': "4+1x40",
        },
        step="1h",
    ),
    "SlateDBCheckpointWithoutExpiryOld": Case(
        "740h",
        {'slatedb_checkpoint_oldest_timestamp_seconds{db="a",state="no_expiry"}': "1x760"},
        {
            'slatedb_checkpoint_oldest_timestamp_seconds{db="a",state="active"}': "1x760",
            'slatedb_checkpoint_oldest_timestamp_seconds{db="a",state="no_expiry"}': "0x700 2500000x60",
        },
        step="1h",
    ),
    "SlateDBReaderLeaseLost": Case(
        "12m",
        {'slatedb_reader_lease_lost_total{db="a"}': "0x5 1x15"},
        {'slatedb_reader_lease_lost_total{db="a"}': "1x20"},
    ),
    "SlateDBObjectStoreErrors": Case(
        "30m",
        {
            'slatedb_object_store_errors_total{db="a",component="writer",error_type="network"}': "0+5x40",
            'slatedb_object_store_requests_total{db="a",component="writer"}': "0+100x40",
        },
        {
            'slatedb_object_store_errors_total{db="a",component="writer",error_type="precondition"}': "0+50x40",
            'slatedb_object_store_requests_total{db="a",component="writer"}': "0+100x40",
        },
    ),
    "SlateDBObjectStoreLatency": Case(
        "30m",
        {
            'slatedb_object_store_request_duration_seconds_bucket{db="a",component="writer",op="put",le="2.5"}': "0x40",
            'slatedb_object_store_request_duration_seconds_bucket{db="a",component="writer",op="put",le="5"}': "0+10x40",
            'slatedb_object_store_request_duration_seconds_bucket{db="a",component="writer",op="put",le="+Inf"}': "0+10x40",
        },
        {
            'slatedb_object_store_request_duration_seconds_bucket{db="a",component="writer",op="put",le="0.1"}': "0+10x40",
            'slatedb_object_store_request_duration_seconds_bucket{db="a",component="writer",op="put",le="+Inf"}': "0+10x40",
        },
    ),
    "SlateDBObjectStoreThrottled": Case(
        "30m",
        {'slatedb_object_store_errors_total{db="a",component="writer",error_type="throttle"}': "0+60x40"},
        {'slatedb_object_store_errors_total{db="a",component="writer",error_type="throttle"}': "9x40"},
    ),
    "SlateDBTransactionalStoreDown": Case(
        "10m",
        {'slatedb_transactional_store_up{db="a",instance="i"}': "1x3 0x20"},
        {
            'slatedb_transactional_store_up{db="a",instance="i"}': "1x3 0x20",
            'slatedb_transactional_store_up{db="a",instance="j"}': "1x30",
        },
    ),
    "SlateDBTwoPhaseUncommitted": Case(
        "20m",
        {'slatedb_two_phase_uncommitted{db="a",instance="i"}': "2x30"},
        {'slatedb_two_phase_uncommitted{db="a",instance="i"}': "2x5 0x30"},
    ),
    "SlateDBCorruption": Case(
        "30m",
        {'slatedb_corruption_total{db="a",resource="manifest"}': "0x5 1x30"},
        {'slatedb_corruption_total{db="a",resource="manifest"}': "1x70"},
    ),
    "SlateDBClockSkew": Case(
        "10m",
        {'slatedb_clock_skew_seconds{db="a",instance="i"}': "-7x20"},
        {'slatedb_clock_skew_seconds{db="a",instance="i"}': "-2x20"},
    ),
    "ShaleEventLoopLag": Case(
        "30m",
        {
            'shale_event_loop_lag_seconds_bucket{instance="i",le="0.25"}': "0x40",
            'shale_event_loop_lag_seconds_bucket{instance="i",le="0.5"}': "0+10x40",
            'shale_event_loop_lag_seconds_bucket{instance="i",le="+Inf"}': "0+10x40",
        },
        {
            'shale_event_loop_lag_seconds_bucket{instance="i",le="0.01"}': "0+10x40",
            'shale_event_loop_lag_seconds_bucket{instance="i",le="+Inf"}': "0+10x40",
        },
    ),
    "ShaleMemoryNearLimit": Case(
        "15m",
        {
            'process_resident_memory_bytes{job="writer",instance="i"}': "95x20",
            'shale_memory_limit_bytes{job="writer",instance="i"}': "100x20",
        },
        {
            'process_resident_memory_bytes{job="writer",instance="i"}': "85x20",
            'shale_memory_limit_bytes{job="writer",instance="i"}': "100x20",
        },
    ),
    "ShaleHTTPErrors": Case(
        "30m",
        {
            'shale_http_requests_total{db="a",instance="i",route="kv",category="read",status="5xx"}': "0+10x40",
            'shale_http_requests_total{db="a",instance="i",route="kv",category="read",status="2xx"}': "0+90x40",
        },
        {
            'shale_http_requests_total{db="a",instance="i",route="kv",category="read",status="4xx"}': "0+50x40",
            'shale_http_requests_total{db="a",instance="i",route="kv",category="read",status="2xx"}': "0+50x40",
        },
    ),
    "ShaleRESPConnectionsRefused": Case(
        "12m",
        {'shale_resp_connections_total{db="a",instance="i",result="refused"}': "0+6x20"},
        {'shale_resp_connections_total{db="a",instance="i",result="refused"}': "6x20"},
    ),
    "ShaleRESPErrors": Case(
        "30m",
        {
            'shale_resp_errors_total{db="a",instance="i",command="set"}': "0+10x40",
            'shale_resp_commands_total{db="a",instance="i",command="set"}': "0+100x40",
        },
        {
            'shale_resp_errors_total{db="a",instance="i",command="set"}': "0+1x40",
            'shale_resp_commands_total{db="a",instance="i",command="set"}': "0+100x40",
        },
    ),
    "ShaleTLSCertificateExpiring": Case(
        "90m",
        {'shale_tls_certificate_expiry_timestamp_seconds{instance="i"}': "500000x120"},
        {'shale_tls_certificate_expiry_timestamp_seconds{instance="i"}': "700000x120"},
    ),
    "ShaleConfigReloadFailed": Case(
        "10m",
        {'shale_config_last_reload_success{instance="i"}': "0x20"},
        {'shale_config_last_reload_success{instance="i"}': "1x20"},
    ),
}

MORE_CASES = (
    ("SlateDBReadLatencyBudgetBurn", _slow_beside_fast("100m", _RESP_READ, "0.1")),
    ("SlateDBReadLatencyBudgetBurnSlow", _slow_beside_fast("110m", _RESP_READ, "0.1")),
    ("SlateDBReadLatencyBudgetBurn", _slow("100m", _COMMAND, _RESP_READ, "0.1")),
    ("SlateDBWriteLatencyBudgetBurn", _slow_beside_fast("100m", _RESP_WRITE, "0.5")),
    ("SlateDBWriteLatencyBudgetBurnSlow", _slow("110m", _COMMAND, _RESP_WRITE, "0.5")),
    ("SlateDBWriterDown", _never_ready("writer")),
    ("SlateDBCompactorDown", _never_ready("compactor")),
    ("SlateDBGCDown", _never_ready("gc")),
    ("SlateDBReaderDown", _never_ready("reader")),
    (
        "SlateDBWriterDown",  # after ten days, too
        Case(
            "240h",
            {'shale_daemon_info{db="a",component="writer",job="j",instance="i"}': "1x5 stale"},
            {'shale_daemon_info{db="a",component="compactor",job="j",instance="i"}': "1x5 stale"},
            step="1h",
        ),
    ),
    (
        "SlateDBReaderDown",  # one of two works
        Case(
            "60m",
            {f'shale_daemon_info{{db="a",component="reader",job="j",instance="i{n}"}}': "1x90" for n in (1, 2)},
            {
                **{f'shale_daemon_info{{db="a",component="reader",job="j",instance="i{n}"}}': "1x90" for n in (1, 2)},
                'shale_role{role="active",job="j",instance="i1"}': "1x90",
                'shale_role{role="active",job="j",instance="i2"}': "0x90",
                'slatedb_reader_visible_timestamp_seconds{db="a",job="j",instance="i1"}': "1x90",
            },
        ),
    ),
    (
        "SlateDBGCNotRunning",  # it never succeeded since its start
        Case(
            "80m",
            {
                'slatedb_gc_last_success_timestamp_seconds{db="a",resource="wal",job="j",instance="i"}': "0x90",
                'slatedb_gc_interval_seconds{db="a",resource="wal",job="j",instance="i"}': "600x90",
                'shale_start_timestamp_seconds{job="j",instance="i"}': "60x90",
            },
            {
                'slatedb_gc_last_success_timestamp_seconds{db="a",resource="wal",job="j",instance="i"}': "0x90",
                'slatedb_gc_interval_seconds{db="a",resource="wal",job="j",instance="i"}': "0x90",
                'shale_start_timestamp_seconds{job="j",instance="i"}': "60x90",
            },
        ),
    ),
    (
        "ShaleCrashLoop",  # without Kubernetes
        Case(
            "20m",
            {'shale_start_timestamp_seconds{job="j",instance="i"}': "1x7 2x2 3x2 4x20"},
            {'shale_start_timestamp_seconds{job="j",instance="i"}': "1x7 2x20"},
        ),
    ),
    (
        "SlateDBL0Stalled",  # one stall that does not end
        Case(
            "12m",
            {'slatedb_db_l0_stalled{db="a"}': "0 1x20", 'slatedb_db_l0_stalls_total{db="a",type="num_ssts"}': "0 1x20"},
            {'slatedb_db_l0_stalled{db="a"}': "0 1x2 0x20", 'slatedb_db_l0_stalls_total{db="a"}': "0 1x20"},
        ),
    ),
    (
        "SlateDBStaleWriteRejected",  # Prometheus did not reach the process for longer than the window
        Case(
            "32m",
            {'slatedb_boundary_rejected_writes_total{db="a",resource="manifest"}': "0x5 _x24 1 stale"},
            {'slatedb_boundary_rejected_writes_total{db="a",resource="manifest"}': "1x5 _x24 1 stale"},
        ),
    ),
    ("SlateDBFenced", _exit(80, other=75)),
    ("SlateDBFenced", _terminated(80, other=75)),
    ("SlateDBBackupOld", _backup_schedule(succeeded_at=600)),
    ("SlateDBBackupOld", _backup_schedule(succeeded_at=None)),
    (
        "SlateDBBackupOld",  # none was ever made, as long as the gc runs
        Case(
            "60h",
            {
                'slatedb_backup_newest_timestamp_seconds{db="a",job="j",instance="i"}': "0x70",
                'slatedb_backup_max_age_seconds{db="a",job="j",instance="i"}': "93600x70",
                'shale_start_timestamp_seconds{job="j",instance="i"}': "60x70",
            },
            {
                'slatedb_backup_newest_timestamp_seconds{db="a",job="j",instance="i"}': "0x70",
                'slatedb_backup_max_age_seconds{db="a",job="j",instance="i"}': "93600x70",
                'shale_start_timestamp_seconds{job="j",instance="i"}': "200000x70",
            },
            step="1h",
        ),
    ),
    ("SlateDBBackupFailed", _backup_jobs(failed_at=200_000, succeeded_at=None)),
    ("SlateDBCorruption", _exit(65, other=70)),
    ("SlateDBCorruption", _terminated(65, other=70)),
    ("SlateDBProtocolPanic", _terminated(70, other=65)),
    ("ShaleProcessFailed", _exit(81, other=80)),
    ("ShaleProcessFailed", _terminated(77, other=80)),
    ("ShaleProcessFailed", _terminated(81, other=75)),
    ("SlateDBWriteErrors", _failed_writes()),
    ("SlateDBWriteAvailabilityBudgetBurn", _failed_writes()),
)
"""Further ways in which an alert fires."""
