"""The object store: requests, bytes, what they cost, and the disk cache in front of it."""

from .panel import Panel, Row, heatmap, one, several
from .queries import gained, per_db, quantiles, rate

MONTH_S = 30 * 24 * 3600
REQUESTS = "slatedb_object_store_requests_total"
WRITES_AND_LISTS = ', api=~"put|multipart_.*|list.*"'
READS = ', api=~"get.*|head"'
"""The two classes of requests in the price lists of S3, GCS and Azure."""

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
        heatmap(
            "Durations of writes",
            "Where the time of PUTs lies.",
            "slatedb_object_store_request_duration_seconds",
            ', op="put"',
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
            "Answers",
            "1 after a probe that the store answered.",
            "short",
            "{{component}} {{instance}}",
            "topk(12, slatedb_object_store_up{$all})",
        ),
        one(
            "Failing writes",
            "SlateDBObjectStoreWritesFailing: for how long the store has not taken a write.",
            "s",
            "{{component}} {{instance}}",
            "topk(12, slatedb_object_store_write_failing_seconds{$all})",
            30,
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
            "Staged objects deleted",
            "Objects of dead processes, with two-phase creates.",
            "short",
            "{{db}}",
            gained("slatedb_two_phase_orphans_deleted_total", "db"),
        ),
    ),
)

NETWORK = Row(
    "Network and cost",
    (
        one(
            "Network",
            "Bytes of objects that the store sent and took.",
            "Bps",
            "{{component}} {{direction}}",
            rate("slatedb_object_store_bytes_total", "component, direction"),
        ),
        several(
            "Cost of requests in a month",
            "At the present rate, with the prices for a thousand requests above. Deletes are free at most providers.",
            "currencyUSD",
            ("{{db}} writes and lists", f"{MONTH_S} / 1000 * $price_write * {per_db(REQUESTS, WRITES_AND_LISTS)}"),
            ("{{db}} reads", f"{MONTH_S} / 1000 * $price_read * {per_db(REQUESTS, READS)}"),
        ),
        one(
            "Cost by component",
            "Who sends the requests that cost most.",
            "currencyUSD",
            "{{component}} {{api}}",
            f"topk(12, {MONTH_S} / 1000 * $price_write * sum by (component, api) "
            f"(rate({REQUESTS}{{$all{WRITES_AND_LISTS}}}[$__rate_interval])))",
        ),
    ),
)

DISK_CACHE = Row(
    "Disk cache",
    (
        one(
            "Hits",
            "Share of parts found on disk.",
            "percentunit",
            "{{db}}",
            f"{per_db('slatedb_object_store_cache_part_hits_total')}"
            f" / ({per_db('slatedb_object_store_cache_part_accesses_total')} > 0)",
        ),
        several(
            "Content",
            "Bytes on disk, and bytes that made room.",
            "bytes",
            ("{{db}} held", "sum by (db) (slatedb_object_store_cache_bytes{$all})"),
            ("{{db}} evicted", gained("slatedb_object_store_cache_evicted_bytes_total", "db")),
        ),
        several(
            "Parts",
            "Parts on disk, and parts that made room.",
            "short",
            ("{{db}} held", "sum by (db) (slatedb_object_store_cache_keys{$all})"),
            ("{{db}} evicted", gained("slatedb_object_store_cache_evicted_keys_total", "db")),
        ),
    ),
)
