"""What a reader shows: its metrics, refreshed before each scrape, and its ``repr``."""

from collections.abc import Callable, Mapping

from shale.core.units import format_size
from shale.engine.reader.options import ReaderMode, ReaderOptions
from shale.engine.reader.state import ReaderState
from shale.errors import ClosedError, ShaleError
from shale.telemetry.metrics import Metrics


def export_reader(
    metrics: Metrics, options: ReaderOptions, figures: Callable[[], tuple[int, int, int, ReaderState | None]]
) -> None:
    """Export the figures of a reader.

    Args:
        metrics: gets them.
        options: a reader of one checkpoint does not poll; its poll interval is exported as 0.
        figures: gets and scans so far, the time of the last successful poll in milliseconds, and the state, unless the
            reader is still being opened.
    """
    interval_s = 0.0 if options.mode is ReaderMode.CHECKPOINT else options.manifest_poll_interval_s
    counters = {op: metrics.counter("slatedb_db_requests_total", op=op) for op in ("get", "scan")}
    visible = metrics.gauge("slatedb_reader_visible_timestamp_seconds")
    metrics.gauge("slatedb_reader_poll_interval_seconds").set(interval_s)
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


def reader_state(
    place: str, mode: ReaderMode, state: ReaderState | None, problem: ShaleError | None
) -> Mapping[str, object]:
    """Return what ``repr`` of a ``DbReader`` shows, from memory; ``state`` is ``None`` while it is opened."""
    shown = "open" if problem is None else "closed" if isinstance(problem, ClosedError) else f"failed: {problem}"
    known: dict[str, object] = {"database": place, "state": shown, "mode": mode.value}
    if state is not None:
        known |= {"manifest": int(state.manifest.id), "visible_seq": state.visible_seq}
        known |= {"checkpoint": str(state.pin.checkpoint_id), "replayed": format_size(state.tables.size_bytes)}
    return known
