"""Metrics of a writer, bound once (docs/how-to/monitor.md)."""

from collections.abc import Callable, Sequence

from shale.iter.merge_operator import MergeOperator
from shale.telemetry.metrics import Metrics
from shale.types import Manifest


class WriterInstruments:
    """The metrics of one writer.  Counts of the hot path are plain integers that are exported before a scrape."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._wal_flushes = metrics.counter("slatedb_wal_flushes_total").inc
        self._wal_bytes = metrics.counter("slatedb_wal_flush_bytes_total").inc
        self.wal_flush_requested = metrics.counter("slatedb_wal_flush_requests_total").inc
        self.wal_replay_seconds = metrics.histogram("slatedb_wal_replay_duration_seconds").observe
        self.wal_replayed = metrics.counter("slatedb_wal_replayed_objects_total").inc
        self._durable_seconds = metrics.histogram("slatedb_db_durable_commit_duration_seconds").observe
        self.table_frozen = metrics.counter("slatedb_memtable_flush_freezes_total").inc
        self.flush_requested = metrics.counter("slatedb_memtable_flush_flush_requests_total").inc
        self.checkpoint_requested = metrics.counter("slatedb_memtable_flush_checkpoint_requests_total").inc
        self.checkpoint_made = metrics.counter(
            "slatedb_checkpoint_operations_total", component="writer", op="create", result="ok"
        ).inc
        self.l0_uploaded = metrics.counter("slatedb_memtable_flush_l0_uploads_total").inc
        self._l0_bytes = metrics.counter("slatedb_db_l0_flush_bytes_total").inc
        self._l0_flushes = metrics.counter("slatedb_memtable_flush_l0_flushes_total").inc
        self._tables_flushed = metrics.counter("slatedb_db_immutable_memtable_flushes_total").inc
        self.manifest_refreshed = metrics.counter("slatedb_memtable_flush_manifest_refreshes_total").inc
        self._stalls = {
            kind: metrics.counter("slatedb_db_l0_stalls_total", type=kind).inc
            for kind in ("num_ssts", "num_ssts_per_key")
        }
        self.l0_stalled = metrics.gauge("slatedb_db_l0_stalled").set
        self.fenced = metrics.counter("slatedb_fenced_total", component="writer").inc
        self._operands = {
            path: metrics.counter("slatedb_merge_operator_operands_total", path=path).inc for path in ("read", "flush")
        }
        self.operand_failures = metrics.counter("slatedb_merge_operator_failures_total", path="flush").inc
        self._gauges = {
            name: metrics.gauge(f"slatedb_db_{name}").set
            for name in ("l0_ssts", "segment_max_l0_ssts", "sorted_runs", "sst_views", "ssts", "external_dbs")
        }

    def wal_flushed(self, size_bytes: int, waited_s: float) -> None:
        """Count a durable WAL file; its oldest row waited ``waited_s`` seconds."""
        self._wal_flushes()
        self._durable_seconds(max(waited_s, 0.0))
        self._wal_bytes(size_bytes)

    def l0_flushed(self, tables: int, size_bytes: int) -> None:
        """Count one manifest update that flushed memtables."""
        self._l0_flushes()
        self._tables_flushed(tables)
        self._l0_bytes(size_bytes)

    def stalled(self, kind: str) -> None:
        """Count a flush that waits because L0 is full."""
        self._stalls[kind]()

    def operands_folded(self, path: str, count: int) -> None:
        """Count operands given to the merge operator."""
        self._operands[path](count)

    def counting(self, operator: MergeOperator | None, path: str) -> MergeOperator | None:
        """Wrap an operator so that it counts its operands."""
        if operator is None:
            return None

        def counting(key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
            self.operands_folded(path, len(operands))
            return operator(key, existing, operands)

        return counting

    def describe(self, manifest: Manifest) -> None:
        """Set the gauges of a manifest."""
        l0_counts = [len(tree.l0) for _, tree in manifest.trees()]
        self._gauges["l0_ssts"](sum(l0_counts))
        self._gauges["segment_max_l0_ssts"](max(l0_counts))
        self._gauges["sorted_runs"](sum(len(tree.compacted) for _, tree in manifest.trees()))
        self._gauges["sst_views"](sum(1 for _ in manifest.views()))
        self._gauges["ssts"](len(manifest.ssts()))
        self._gauges["external_dbs"](len(manifest.external_dbs))

    def export(self, numbers: dict[str, Callable[[], int]], gauges: dict[str, Callable[[], float]]) -> None:
        """Export counters and gauges before every scrape.

        Args:
            numbers: functions that return growing totals, by counter name.
            gauges: functions that return levels, by gauge name.
        """
        counters = {name: self._metrics.counter(name).inc for name in numbers}
        setters = {name: self._metrics.gauge(name).set for name in gauges}
        seen = dict.fromkeys(numbers, 0)

        def refresh() -> None:
            for name, read in numbers.items():
                now = read()
                counters[name](now - seen[name])
                seen[name] = now
            for name, level in gauges.items():
                setters[name](level())

        self._metrics.before_scrape(refresh)

    def export_requests(self, numbers: dict[str, Callable[[], int]]) -> None:
        """Export the number of calls by operation before every scrape."""
        counters = {op: self._metrics.counter("slatedb_db_requests_total", op=op).inc for op in numbers}
        seen = dict.fromkeys(numbers, 0)

        def refresh() -> None:
            for op, read in numbers.items():
                now = read()
                counters[op](now - seen[op])
                seen[op] = now

        self._metrics.before_scrape(refresh)
