"""Metrics of the Redis port: plain counters, copied into the registry before a scrape."""

from shale.resp.backend import Backend
from shale.telemetry.metrics import Metrics


def export(backend: Backend, metrics: Metrics) -> None:
    """Export the counters of the backend."""
    calls = {name: metrics.counter("shale_resp_commands_total", command=name).inc for name in backend.calls}
    errors = {name: metrics.counter("shale_resp_errors_total", command=name).inc for name in backend.errors}
    failures = {name: metrics.counter("shale_resp_failures_total", command=name).inc for name in backend.failures}
    connections = metrics.gauge("shale_resp_connections_open")
    inflight = metrics.gauge("shale_resp_inflight_bytes")
    totals = {
        "connections_accepted": metrics.counter("shale_resp_connections_total", result="accepted").inc,
        "connections_refused": metrics.counter("shale_resp_connections_total", result="refused").inc,
        "protocol_errors": metrics.counter("shale_resp_protocol_errors_total").inc,
        "bytes_read": metrics.counter("shale_resp_bytes_total", direction="read").inc,
        "bytes_written": metrics.counter("shale_resp_bytes_total", direction="written").inc,
    }
    counted = (
        (calls, dict(backend.calls), backend.calls),
        (errors, dict(backend.errors), backend.errors),
        (failures, dict(backend.failures), backend.failures),
    )
    seen_totals = dict.fromkeys(totals, 0)

    def refresh() -> None:
        for count, seen, now in counted:
            for name, number in now.items():
                if number != seen[name]:
                    count[name](number - seen[name])
                    seen[name] = number
        for name, add in totals.items():
            number = getattr(backend, name)
            add(number - seen_totals[name])
            seen_totals[name] = number
        connections.set(backend.connections)
        inflight.set(backend.inflight_bytes)

    metrics.before_scrape(refresh)
