"""The metrics of a reader, refreshed before each scrape."""

from collections.abc import Callable

from shale.engine.reader.state import ReaderState
from shale.telemetry.metrics import Metrics


def export_reader(metrics: Metrics, figures: Callable[[], tuple[int, int, int, ReaderState | None]]) -> None:
    """Export the figures of a reader.

    Args:
        metrics: gets them.
        figures: gets and scans so far, the time of the last successful poll in milliseconds, and the state, unless the
            reader is still being opened.
    """
    counters = {op: metrics.counter("slatedb_db_requests_total", op=op) for op in ("get", "scan")}
    visible = metrics.gauge("slatedb_reader_visible_timestamp_seconds")
    memtable = metrics.gauge("slatedb_reader_memtable_bytes")
    exported = {"get": 0, "scan": 0}

    def refresh() -> None:
        gets, scans, last_poll_ms, state = figures()
        for op, count in (("get", gets), ("scan", scans)):
            counters[op].inc(count - exported[op])
            exported[op] = count
        visible.set(last_poll_ms / 1000)
        if state is not None:
            memtable.set(state.tables.size_bytes)

    metrics.before_scrape(refresh)
