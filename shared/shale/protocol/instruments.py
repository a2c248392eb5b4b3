"""Metrics of sequenced files, boundaries and updates, bound once (docs/how-to/monitor.md)."""

from typing import TYPE_CHECKING

from shale.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from shale.telemetry.instruments import Histogram


class SequencedInstruments:
    """Counts how the latest version was found."""

    def __init__(self, metrics: Metrics, resource: str) -> None:
        name = "slatedb_sequenced_latest_reads_total"
        self.hit = metrics.counter(name, resource=resource, result="hit").inc
        self.cold = metrics.counter(name, resource=resource, result="cold").inc
        self.list_fallback = metrics.counter(name, resource=resource, result="list_fallback").inc
        self.probed = metrics.histogram("slatedb_sequenced_read_probes", resource=resource).observe


class BoundaryInstruments:
    """Counts checks against a boundary, and its advances."""

    def __init__(self, metrics: Metrics, resource: str) -> None:
        checks, advances = "slatedb_boundary_checks_total", "slatedb_boundary_advances_total"
        self._checks = {
            (result, cached): metrics.counter(
                checks, resource=resource, result=result, cached="true" if cached else "false"
            )
            for result in ("ok", "stale", "error")
            for cached in (True, False)
        }
        self._advances = {
            result: metrics.counter(advances, resource=resource, result=result)
            for result in ("ok", "noop", "conflict", "error")
        }
        self.check_seconds = metrics.histogram("slatedb_boundary_check_duration_seconds", resource=resource).observe
        self.value = metrics.gauge("slatedb_boundary_value", resource=resource).set

    def checked(self, result: str, *, cached: bool) -> None:
        """Count one check; ``cached``: the boundary's body was not read again."""
        self._checks[result, cached].inc()

    def advanced(self, result: str) -> None:
        """Count one attempt to advance."""
        self._advances[result].inc()


class VersionInstruments:
    """Counts committed and rejected versions."""

    def __init__(self, metrics: Metrics, resource: str) -> None:
        self.corrupt = metrics.counter("slatedb_corruption_total", resource=resource).inc
        self.rejected_write = metrics.counter("slatedb_boundary_rejected_writes_total", resource=resource).inc
        name = "slatedb_sequenced_latest_reads_total"
        self.invalidated = metrics.counter(name, resource=resource, result="invalidated").inc
        self._is_manifest = resource == "manifest"
        if self._is_manifest:
            self._bytes = metrics.gauge("slatedb_manifest_bytes").set
            self._id = metrics.gauge("slatedb_manifest_id").set
            self._written_at = metrics.gauge("slatedb_manifest_written_timestamp_seconds").set

    def seen(self, file_id: int, size: int) -> None:
        """Record the newest version; only manifests have gauges."""
        if self._is_manifest:
            self._bytes(size)
            self._id(file_id)

    def committed(self, file_id: int, size: int, now_ms: int) -> None:
        """Record a version that this process wrote."""
        self.seen(file_id, size)
        if self._is_manifest:
            self._written_at(now_ms / 1000)


class UpdateInstruments:
    """Counts attempts to write a version by result, and measures whole updates."""

    def __init__(self, metrics: Metrics, resource: str, component: str) -> None:
        self._seconds: Histogram | None = None
        if resource == "manifest":
            name = "slatedb_manifest_update_attempts_total"
            self._results = {
                result: metrics.counter(name, component=component, result=result)
                for result in ("ok", "conflict", "fenced", "stale", "error")
            }
            self._seconds = metrics.histogram("slatedb_manifest_update_duration_seconds", component=component)
        else:
            name = "slatedb_compactions_writes_total"
            self._results = {
                result: metrics.counter(name, result=result) for result in ("ok", "conflict", "fenced", "error")
            }

    def attempt(self, result: str) -> None:
        """Count one attempt; a result without a series of its own counts as a conflict."""
        self._results.get(result, self._results["conflict"]).inc()

    def seconds(self, elapsed_s: float) -> None:
        """Record an update with all its retries."""
        if self._seconds is not None:
            self._seconds.observe(elapsed_s)
