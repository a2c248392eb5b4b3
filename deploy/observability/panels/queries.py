"""Expressions that several pages have, and how counters and histograms are shown.  See ``panel`` for ``$all``."""


def rate(metric: str, by: str, more: str = "") -> str:
    """What happens per second, the twelve largest."""
    return f"topk(12, sum by ({by}) (rate({metric}{{$all{more}}}[$__rate_interval])))"


def gained(metric: str, by: str, more: str = "") -> str:
    """Return how much a counter of rare events rose between two points of a graph."""
    return f"sum by ({by}) (increase({metric}{{$all{more}}}[$__rate_interval]))"


def per_db(metric: str, more: str = "") -> str:
    """Return what a database does per second."""
    return f"sum by (db) (rate({metric}{{$all{more}}}[$__rate_interval]))"


def quantiles(metric: str, by: str, more: str = "") -> tuple[tuple[str, str], ...]:
    """The median, the 95th and the 99th percentile."""
    legend = " ".join(f"{{{{{name}}}}}" for name in by.split(", "))
    inner = f"sum by ({by}, le) (rate({metric}_bucket{{$all{more}}}[$__rate_interval]))"
    return tuple((f"{legend} p{q}", f"topk(12, histogram_quantile(0.{q}, {inner}))") for q in (50, 95, 99))


COMMIT = "slatedb_db_durable_commit_duration_seconds"
CALL = "slatedb_db_request_duration_seconds"
COMMAND = "shale_resp_command_duration_seconds"
L0_USE = "max by (db) (slatedb_db_segment_max_l0_ssts{$all} / slatedb_db_l0_limit_ssts{$all})"
UNFLUSHED_USE = "max by (db) (slatedb_db_unflushed_bytes{$all} / slatedb_db_unflushed_limit_bytes{$all})"
LAG = "time() - min by (db, instance) (slatedb_reader_visible_timestamp_seconds{$all} > 0)"
COMMIT_P99 = f"histogram_quantile(0.99, sum by (db, le) (rate({COMMIT}_bucket{{$all}}[$__rate_interval])))"
READ_P99 = (
    f'histogram_quantile(0.99, sum by (db, le) (rate({CALL}_bucket{{$all, op="get"}}[$__rate_interval])'
    f' or rate({COMMAND}_bucket{{$all, category="read"}}[$__rate_interval])))'
)
SINCE_COMPACTION = "time() - max by (db) (slatedb_compactor_last_success_timestamp_seconds{$all} > 0)"
SINCE_GC = "time() - min by (db) (slatedb_gc_last_success_timestamp_seconds{$all} > 0)"
