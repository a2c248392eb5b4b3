"""Forwarding of Shale's metrics to a recorder, under SlateDB's names.

Calls and writes are forwarded at once.  Everything else is read from Shale's registry: for the default recorder before
it is read, for others once a second.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import anyio

from shale.compat.slatedb.metrics.recorder import Counter, Gauge, MetricsRecorder, after_reading, before_reading
from shale.compat.slatedb.types.records import MetricLabel
from shale.iter.user_code import USER_CODE_ERRORS
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

PUBLISH_INTERVAL_S = 1.0
log = get_logger("compat")

_COUNTERS: Final = {
    "slatedb_db_backpressure_total": "slatedb.db.backpressure_count",
    "slatedb_db_l0_stalls_total": "slatedb.db.l0_stall_count",
    "slatedb_db_immutable_memtable_flushes_total": "slatedb.db.immutable_memtable_flushes",
    "slatedb_db_memtable_write_bytes_total": "slatedb.db.memtable_write_bytes",
    "slatedb_db_l0_flush_bytes_total": "slatedb.db.l0_flush_bytes",
    "slatedb_db_sst_filter_positives_total": "slatedb.db.sst_filter_positive_count",
    "slatedb_db_sst_filter_negatives_total": "slatedb.db.sst_filter_negative_count",
    "slatedb_db_sst_filter_false_positives_total": "slatedb.db.sst_filter_false_positive_count",
    "slatedb_merge_operator_operands_total": "slatedb.merge_operator_operands",
    "slatedb_db_cache_accesses_total": "slatedb.db_cache.access_count",
    "slatedb_db_cache_errors_total": "slatedb.db_cache.error_count",
    "slatedb_wal_flushes_total": "slatedb.wal.wal_buffer_flushes",
    "slatedb_wal_flush_requests_total": "slatedb.wal.wal_buffer_flush_requests",
    "slatedb_wal_flush_bytes_total": "slatedb.wal.wal_flush_bytes",
    "slatedb_memtable_flush_freezes_total": "slatedb.memtable_flush.memtable_freeze_count",
    "slatedb_memtable_flush_checkpoint_requests_total": "slatedb.memtable_flush.checkpoint_request_count",
    "slatedb_memtable_flush_flush_requests_total": "slatedb.memtable_flush.flush_request_count",
    "slatedb_memtable_flush_l0_uploads_total": "slatedb.memtable_flush.l0_upload_count",
    "slatedb_memtable_flush_l0_flushes_total": "slatedb.memtable_flush.l0_flush_count",
    "slatedb_memtable_flush_manifest_refreshes_total": "slatedb.memtable_flush.manifest_refresh_count",
    "slatedb_object_store_requests_total": "slatedb.object_store.request_count",
    "slatedb_object_store_errors_total": "slatedb.object_store.error_count",
    "slatedb_gc_runs_total": "slatedb.gc.count",
    "slatedb_gc_deleted_objects_total": "slatedb.gc.deleted_count",
}
_GAUGES: Final = {
    "slatedb_db_unflushed_bytes": "slatedb.db.total_mem_size_bytes",
    "slatedb_db_l0_ssts": "slatedb.db.l0_sst_count",
    "slatedb_db_segment_max_l0_ssts": "slatedb.db.segment_max_l0_sst_count",
    "slatedb_db_sorted_runs": "slatedb.db.sorted_run_count",
    "slatedb_db_sst_views": "slatedb.db.sst_view_count",
    "slatedb_db_ssts": "slatedb.db.sst_count",
    "slatedb_db_external_dbs": "slatedb.db.external_db_count",
    "slatedb_wal_buffer_bytes": "slatedb.wal.wal_buffer_estimated_bytes",
    "slatedb_gc_versions": "slatedb.gc.version_count",
}
_OPS: Final = ("get", "scan", "flush")
_WITHOUT_LABELS: Final = ("slatedb.gc.count",)
"""Metrics that SlateDB does not divide by label."""
_COMPONENTS: Final = {"writer": "db"}
_WRITING: Final = ("put", "multipart_init", "multipart_part", "multipart_complete")
"""Store calls that SlateDB counts as ``put``; ``delete`` has its own label, and the rest is ``get``."""

Labels: TypeAlias = tuple[tuple[str, str], ...]


class MetricsBridge:
    """Forwards the metrics of one handle to its recorder, if it has one."""

    def __init__(self, recorder: MetricsRecorder | None, metrics: Metrics) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._counters: dict[tuple[str, Labels], tuple[Counter, float]] = {}
        self._gauges: dict[tuple[str, Labels], tuple[Gauge, float]] = {}
        self.get, self.scan, self.flush = (self._counted("slatedb.db.request_count", op=op) for op in _OPS)
        self._batches = self._counted("slatedb.db.write_batch_count")
        self._ops = self._counted("slatedb.db.write_ops")
        self._counted("slatedb.db_cache.error_count")  # stays 0: Shale's cache has no errors
        self._rows_recorded = 0
        self._rows_written: Callable[[], int] = _zero
        if recorder is not None:
            before_reading(recorder, self.publish)

    def count_rows(self, rows_written: Callable[[], int]) -> None:
        """Set the source of the number of rows written."""
        self._rows_written = rows_written

    def wrote(self) -> None:
        """Count an accepted commit."""
        if self._recorder is not None:
            rows = self._rows_written()
            self._ops(rows - self._rows_recorded)
            self._rows_recorded = rows
            self._batches(1)

    def close(self) -> None:
        """Forward the last values and detach from the recorder, which may outlive the handle."""
        self.publish()
        if self._recorder is not None:
            after_reading(self._recorder, self.publish)

    def tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the tasks to run beside the handle."""
        return {} if self._recorder is None else {"metrics": self._run}

    async def _run(self) -> None:
        while True:
            await anyio.sleep(PUBLISH_INTERVAL_S)
            try:
                self.publish()
            except USER_CODE_ERRORS as error:  # the compactor and the collector run beside it, and shall go on
                log.error(Event.EMBEDDED_FAILED, resource="metrics", error=error)
                return

    def publish(self) -> None:
        """Forward the changes of Shale's metrics since the last time."""
        if self._recorder is None:
            return
        self._metrics.refresh()
        counted: dict[tuple[str, Labels], float] = defaultdict(float)
        for family in self._metrics.registry.collect():
            for sample in family.samples:
                if (name := _COUNTERS.get(sample.name)) is not None and _is_recorded_call(sample.labels):
                    counted[name, () if name in _WITHOUT_LABELS else _slatedb_labels(sample.labels)] += sample.value
                elif (name := _GAUGES.get(sample.name)) is not None:
                    self._set(self._recorder, name, _slatedb_labels(sample.labels), sample.value)
        for (name, labels), value in counted.items():
            self._grow(self._recorder, name, labels, value)

    def _grow(self, recorder: MetricsRecorder, name: str, labels: Labels, value: float) -> None:
        key = (name, labels)
        if key not in self._counters:
            self._counters[key] = recorder.register_counter(name, None, _labels(dict(labels))), 0
        counter, before = self._counters[key]
        if value > before:
            counter.increment(int(value - before))
            self._counters[key] = counter, value

    def _set(self, recorder: MetricsRecorder, name: str, labels: Labels, value: float) -> None:
        key = (name, labels)
        if key not in self._gauges:
            self._gauges[key] = recorder.register_gauge(name, None, _labels(dict(labels))), -1
        gauge, before = self._gauges[key]
        if value != before:
            gauge.set(int(value))
            self._gauges[key] = gauge, value

    def _counted(self, name: str, **labels: str) -> Callable[[int], None]:
        if self._recorder is None:
            return _ignore
        return self._recorder.register_counter(name, None, _labels(labels)).increment


def _is_recorded_call(labels: Mapping[str, str]) -> bool:
    """Return whether an operation makes this store call: the registry has a counter for each combination."""
    call = labels.get("api")
    if call is None:
        return True
    return labels["op"] == ("put" if call in _WRITING else "delete" if call == "delete" else "get")


def _slatedb_labels(labels: Mapping[str, str]) -> Labels:
    """Return labels as SlateDB has them: without the database and the type of errors."""
    translated = {name: value for name, value in labels.items() if name not in ("db", "error_type")}
    if "component" in translated:
        translated["component"] = _COMPONENTS.get(translated["component"], translated["component"])
    return tuple(sorted(translated.items()))


def _labels(labels: Mapping[str, str]) -> list[MetricLabel]:
    return [MetricLabel(key=key, value=value) for key, value in labels.items()]


def _ignore(_value: int) -> None:
    """Count nothing."""


def _zero() -> int:
    return 0
