"""The pages: which rows of panels each of them has."""

from .compaction import COMPACTION, SPARK
from .daemons import GC, READER, RUNTIME, STANDBY
from .engine import AMPLIFICATION, COORDINATION, FLUSHES, READS, REPLAY, SHAPE, WRITES
from .panel import Dashboard, Row, one, stat
from .queries import COMMIT_P99, L0_USE, LAG, READ_P99, SINCE_COMPACTION, SINCE_GC, UNFLUSHED_USE, rate
from .serving import CALLS, HTTP, RESP
from .store import DISK_CACHE, NETWORK, STORE

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
        one(
            "Lag of readers",
            "SlateDBReaderStale beyond five poll intervals.",
            "s",
            "{{db}} {{instance}}",
            f"topk(12, {LAG})",
        ),
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
    Dashboard(
        "overview",
        "Overview",
        "One database, from headlines to the store.",
        (HEADLINES, HTTP, CALLS, SHAPE, AMPLIFICATION, COORDINATION, STORE),
    ),
    Dashboard("fleet", "Fleet", "All databases beside each other.", (FLEET,)),
    Dashboard(
        "writer",
        "Writer",
        "Writes and reads of the writer, and its ports.",
        (HEADLINES, WRITES, FLUSHES, CALLS, READS, REPLAY, STANDBY, HTTP, RESP),
    ),
    Dashboard("reader", "Reader", "How old readers are, and what they serve.", (READER, READS, DISK_CACHE, HTTP)),
    Dashboard(
        "compaction", "Compaction", "Jobs, workers and what they leave.", (COMPACTION, SHAPE, AMPLIFICATION, SPARK)
    ),
    Dashboard("gc", "GC and boundaries", "What is collected, and what holds it back.", (GC, COORDINATION)),
    Dashboard(
        "store", "Object store and cost", "Requests, errors, latency, what they cost.", (STORE, NETWORK, DISK_CACHE)
    ),
    Dashboard("runtime", "Runtime", "The Python processes.", (RUNTIME,)),
)
