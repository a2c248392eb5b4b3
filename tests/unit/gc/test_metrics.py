"""The metrics of GC exist from the start, and tell the intervals."""

from uuid import UUID

from shale.env import Env
from shale.gc.collector import Collector
from shale.gc.metrics import GcMetrics
from shale.gc.options import GcOptions, Task, TaskOptions
from shale.protocol.markers import DestroyedMark
from shale.store.memory import MemoryStore
from shale.telemetry.error_types import ErrorType
from shale.telemetry.metrics import Metrics
from shale.types import Checkpoint, Manifest, ManifestId

ENV = Env.system(cpu_threads=1)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"db": "orders", **labels})


def test_what_can_be_counted_is_zero_before_the_first_pass() -> None:
    metrics = Metrics(db="orders")
    GcMetrics(metrics)
    for name in ("gc_detached_clones_total", "two_phase_orphans_deleted_total"):
        assert value(metrics, f"slatedb_{name}") == 0
    expired = {"component": "gc", "op": "expire", "result": "ok"}
    assert value(metrics, "slatedb_checkpoint_operations_total", **expired) == 0
    for task in Task:
        assert value(metrics, "slatedb_gc_deleted_objects_total", resource=task) == 0
        assert value(metrics, "slatedb_gc_candidates", resource=task) == 0
        assert value(metrics, "slatedb_gc_run_duration_seconds_count", resource=task) == 0
        assert value(metrics, "slatedb_gc_last_success_timestamp_seconds", resource=task) == 0
        assert value(metrics, "slatedb_gc_deleted_bytes_total", resource=task) == 0
        for result in ("ok", "error"):
            assert value(metrics, "slatedb_gc_runs_total", resource=task, result=result) == 0
        for error_type in ErrorType:
            assert value(metrics, "slatedb_gc_errors_total", resource=task, error_type=error_type) == 0


def test_intervals_follow_the_options() -> None:
    metrics = Metrics(db="orders")
    collector = Collector(MemoryStore(), "orders", ENV, GcOptions(wal=TaskOptions(interval_s=60)), metrics)
    assert value(metrics, "slatedb_gc_interval_seconds", resource="wal") == 60
    assert value(metrics, "slatedb_gc_interval_seconds", resource="manifest") == 600
    assert value(metrics, "slatedb_gc_interval_seconds", resource="wal_fence") == 0
    collector.reconfigure(GcOptions(wal=None))
    assert value(metrics, "slatedb_gc_interval_seconds", resource="wal") == 0


def test_the_time_of_a_destroy_is_zero_without_one() -> None:
    metrics = Metrics(db="orders")
    instruments = GcMetrics(metrics)
    for mark, time_s in ((None, 0), (DestroyedMark(1_700_000_000, UUID(int=7)), 1_700_000_000), (None, 0)):
        instruments.destroyed(mark)
        assert value(metrics, "slatedb_db_destroyed_timestamp_seconds") == time_s


def test_the_oldest_checkpoint_is_known_by_its_state() -> None:
    """An old one that expires must not look like one that never does."""
    metrics = Metrics(db="orders")
    made = ((1, 2, 60), (2, 5, 900), (3, 7, 0), (4, 9, 0))
    checkpoints = tuple(
        Checkpoint(id=UUID(int=number), manifest_id=ManifestId(1), create_s=create_s, expire_s=expire_s)
        for number, create_s, expire_s in made
    )
    GcMetrics(metrics).checkpoints(Manifest(checkpoints=checkpoints), 100_000)
    oldest = "slatedb_checkpoint_oldest_timestamp_seconds"
    assert [value(metrics, oldest, state=state) for state in ("expired", "active", "no_expiry")] == [2, 5, 7]
    GcMetrics(metrics).checkpoints(Manifest(), 100_000)
    assert value(metrics, oldest, state="no_expiry") == 0
