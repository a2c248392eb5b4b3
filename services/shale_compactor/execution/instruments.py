"""What carrying out jobs measures (docs/telemetry.md), bound once."""

from shale.telemetry.metrics import Metrics


class ExecutorMetrics:
    """Counters of one executor."""

    def __init__(self, metrics: Metrics) -> None:
        self.folded = metrics.counter("slatedb_merge_operator_operands_total", path="compact").inc
        self.refused = metrics.counter("slatedb_merge_operator_refused_total", path="compact").inc
        name = "slatedb_compactor_expired_entries_total"
        self._expired = {kind: metrics.counter(name, entry_type=kind).inc for kind in ("value", "merge")}

    def expired(self, values: int, operands: int) -> None:
        """Rows that compactions found expired."""
        self._expired["value"](values)
        self._expired["merge"](operands)
