"""What the coordinator measures (docs/operations.md 1.5, 1.6), bound once."""

from shale.compaction.entries import with_status
from shale.compaction.specs import size_estimate_bytes
from shale.telemetry.metrics import Metrics
from shale.types import Compactions, CompactionStatus, Manifest


class CoordinatorMetrics:
    """Counters and gauges of the coordinator."""

    def __init__(self, metrics: Metrics) -> None:
        self.epoch = metrics.gauge("slatedb_compactor_epoch").set
        self.committed = metrics.gauge("slatedb_compactor_last_success_timestamp_seconds").set
        self.reclaimed = metrics.counter("slatedb_compactor_jobs_reclaimed_total").inc
        self.fenced = metrics.counter("slatedb_fenced_total", component="compactor").inc
        self.rejected = metrics.counter(
            "slatedb_compaction_errors_total", error_type="validation", retryable="false"
        ).inc
        self._inflight_bytes = metrics.gauge("slatedb_compactor_inflight_input_bytes").set
        self._waiting_for_commit = metrics.gauge("slatedb_compaction_phase", phase="commit").set

    def observe(self, manifest: Manifest, compactions: Compactions) -> None:
        """Set the gauges that describe all active jobs."""
        active = [entry for entry in compactions.entries if entry.is_active]
        self._inflight_bytes(sum(size_estimate_bytes(manifest, entry.spec) for entry in active))
        self._waiting_for_commit(len(with_status(compactions, CompactionStatus.COMPACTED)))
