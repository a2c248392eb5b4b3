"""Numbers of the process that the console shows, from its metrics."""

from shale.telemetry.metrics import Metrics

SHOWN = (
    "slatedb_db_requests",
    "slatedb_db_write_ops",
    "slatedb_db_backpressure",
    "slatedb_db_l0_stalls",
    "slatedb_db_unflushed_bytes",
    "slatedb_db_unflushed_limit_bytes",
    "slatedb_wal_flushes",
    "slatedb_wal_flush_bytes",
    "slatedb_memtable_flush_l0_flushes",
    "slatedb_db_cache_accesses",
    "slatedb_object_store_requests",
    "slatedb_object_store_errors",
    "slatedb_fenced",
    "slatedb_gc_deleted_objects",
    "slatedb_compaction_progress_ratio",
)
"""Families whose samples are added up, but for the labels that ``_PARTS`` keeps apart."""
_PARTS = ("result", "op")


class Counters:
    """Sums of samples by family, and for some families by result or operation."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def read(self) -> dict[str, float]:
        """Return the sums that are not 0."""
        self._metrics.refresh()
        sums: dict[str, float] = {}
        for family in self._metrics.registry.collect():
            if family.name not in SHOWN:
                continue
            for sample in family.samples:
                if sample.name.endswith("_created"):
                    continue
                part = next((sample.labels[label] for label in _PARTS if label in sample.labels), "")
                name = f"{family.name}.{part}" if part else family.name
                sums[name] = sums.get(name, 0.0) + sample.value
        return {name: value for name, value in sums.items() if value}
