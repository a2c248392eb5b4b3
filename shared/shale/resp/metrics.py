"""Metrics of the Redis port: plain counters, copied into the registry before a scrape."""

from collections.abc import Mapping

from shale.resp.backend import Backend
from shale.resp.latency import CATEGORIES
from shale.resp.session import RespCommand
from shale.telemetry.metrics import Metrics


def export(backend: Backend, metrics: Metrics, commands: Mapping[str, RespCommand]) -> None:
    """Export the counters of the backend.

    Args:
        commands: those that it counts, by name; more are counted as ``other``.  Only writes that do not become durable
            fail under this name.
    """
    categories = {
        # The latency of FLUSHDB is that of a scan; for objectives of writes it is one.
        name: "write" if "write" in command.flags else CATEGORIES[command.category]
        for name, command in commands.items()
    }
    calls = {
        name: metrics.counter("shale_resp_commands_total", command=name, category=categories.get(name, "other")).inc
        for name in backend.calls
    }
    errors = {name: metrics.counter("shale_resp_errors_total", command=name).inc for name in backend.errors}
    failures = {
        name: metrics.counter("shale_resp_failures_total", command=name, category=categories.get(name, "write")).inc
        for name in backend.failures
    }
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
