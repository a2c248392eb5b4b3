"""Metrics of GC (docs/how-to/monitor.md)."""

from shale.gc.options import GcOptions, Task
from shale.gc.planner import Cutoff
from shale.protocol.markers import DestroyedMark
from shale.telemetry.error_types import ErrorType, error_type_of
from shale.telemetry.metrics import Metrics
from shale.types import Manifest


class GcMetrics:
    """All metrics of one collector.  Those of every task exist from the start, with the value 0."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        for name in ("slatedb_gc_deleted_objects_total", "slatedb_gc_deleted_bytes_total"):
            metrics.counter(name, resource=Task.MANIFEST)
        metrics.counter("slatedb_gc_runs_total", resource=Task.MANIFEST, result="ok")
        metrics.counter("slatedb_gc_detached_clones_total")
        metrics.counter("slatedb_two_phase_orphans_deleted_total")
        metrics.counter("slatedb_checkpoint_operations_total", component="gc", op="expire", result="ok")
        metrics.histogram("slatedb_gc_run_duration_seconds", resource=Task.MANIFEST)
        for gauge in ("slatedb_gc_last_success_timestamp_seconds", "slatedb_gc_candidates"):
            metrics.gauge(gauge, resource=Task.MANIFEST)
        for task in Task:
            for error_type in ErrorType:  # too many for the registry to make them by itself
                metrics.counter("slatedb_gc_errors_total", resource=task, error_type=error_type.value)

    def configured(self, options: GcOptions) -> None:
        """Set the interval of each task, against which alerts measure its last success."""
        for task in Task:
            chosen = options.task(task)
            interval_s = 0.0 if chosen is None else chosen.interval_s
            self._metrics.gauge("slatedb_gc_interval_seconds", resource=task).set(interval_s)

    def ended(self, task: Task, *, seconds: float, now_ms: int) -> None:
        """Count a successful pass."""
        self._metrics.counter("slatedb_gc_runs_total", resource=task, result="ok").inc()
        self._metrics.histogram("slatedb_gc_run_duration_seconds", resource=task).observe(seconds)
        self._metrics.gauge("slatedb_gc_last_success_timestamp_seconds", resource=task).set(now_ms / 1000)

    def failed(self, task: Task, error: BaseException, *, seconds: float) -> None:
        """Count a failed pass."""
        self._metrics.counter("slatedb_gc_runs_total", resource=task, result="error").inc()
        self._metrics.histogram("slatedb_gc_run_duration_seconds", resource=task).observe(seconds)
        self.error(task, error)

    def error(self, task: Task, error: BaseException) -> None:
        """Count an error of a pass or of one deletion."""
        self._metrics.counter("slatedb_gc_errors_total", resource=task, error_type=error_type_of(error)).inc()

    def planned(self, task: Task, count: int) -> None:
        """Set the number of objects that the current plan deletes, dry runs included."""
        self._metrics.gauge("slatedb_gc_candidates", resource=task).set(count)

    def deleted(self, task: Task, count: int, size: int) -> None:
        """Count deleted objects, or released parents."""
        self._metrics.counter("slatedb_gc_deleted_objects_total", resource=task).inc(count)
        if size:
            self._metrics.counter("slatedb_gc_deleted_bytes_total", resource=task).inc(size)

    def pending(self, delta: int) -> None:
        """Change the number of pending deletions."""
        self._metrics.gauge("slatedb_gc_pending_deletes").inc(delta)

    def versions(self, task: Task, count: int) -> None:
        """Set the number of stored versions."""
        self._metrics.gauge("slatedb_gc_versions", resource=task).set(count)

    def cutoff(self, cutoff: Cutoff) -> None:
        """Set the terms of the cutoff for SSTs."""
        terms = {
            "min_age": cutoff.min_age_ms,
            "compactions": cutoff.compactions_ms,
            "newest_l0": cutoff.newest_l0_ms,
            "final": cutoff.final_ms,
        }
        for term, value_ms in terms.items():
            self._metrics.gauge("slatedb_gc_cutoff_timestamp_seconds", term=term).set(value_ms / 1000)

    def destroyed(self, mark: DestroyedMark | None) -> None:
        """Set when the database was marked as destroyed; 0 if it is not marked."""
        self._metrics.gauge("slatedb_db_destroyed_timestamp_seconds").set(0 if mark is None else mark.destroyed_at_s)

    def detached(self) -> None:
        """Count a released parent."""
        self._metrics.counter("slatedb_gc_detached_clones_total").inc()

    def expired(self, count: int) -> None:
        """Count removed checkpoints."""
        self._metrics.counter("slatedb_checkpoint_operations_total", component="gc", op="expire", result="ok").inc(
            count
        )

    def checkpoints(self, manifest: Manifest, now_ms: int) -> None:
        """Set the gauges for the checkpoints of the latest manifest."""
        created: dict[str, list[int]] = {"active": [], "expired": [], "no_expiry": []}
        for checkpoint in manifest.checkpoints:
            state = "no_expiry" if not checkpoint.expire_s else "expired" if checkpoint.is_expired(now_ms) else "active"
            created[state].append(checkpoint.create_s)
        for state, times_s in created.items():
            self._metrics.gauge("slatedb_checkpoints", state=state).set(len(times_s))
            oldest = self._metrics.gauge("slatedb_checkpoint_oldest_timestamp_seconds", state=state)
            oldest.set(min(times_s, default=0))
