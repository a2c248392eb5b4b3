"""The metrics of a writer: which event moves which number, and by how much."""

from collections.abc import Callable
from uuid import UUID

import anyio
import pytest

import shale
from shale.engine.write.instruments import WriterInstruments
from shale.merge_operators import concatenate
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.types import ExternalDb, Manifest, Segment
from tests.unit.protocol.values import run_of, tree

COUNTERS: dict[str, dict[str, str]] = {
    "slatedb_wal_flushes_total": {},
    "slatedb_wal_flush_bytes_total": {},
    "slatedb_wal_flush_requests_total": {},
    "slatedb_wal_replayed_objects_total": {},
    "slatedb_memtable_flush_freezes_total": {},
    "slatedb_memtable_flush_flush_requests_total": {},
    "slatedb_memtable_flush_checkpoint_requests_total": {},
    "slatedb_checkpoint_operations_total": {"component": "writer", "op": "create", "result": "ok"},
    "slatedb_memtable_flush_l0_uploads_total": {},
    "slatedb_db_l0_flush_bytes_total": {},
    "slatedb_memtable_flush_l0_flushes_total": {},
    "slatedb_db_immutable_memtable_flushes_total": {},
    "slatedb_memtable_flush_manifest_refreshes_total": {},
    "slatedb_fenced_total": {"component": "writer"},
    "slatedb_merge_operator_failures_total": {"path": "flush"},
}
"""Counters with the labels that a writer gives them."""
SPLIT = {
    "slatedb_db_l0_stalls_total": ("type", ("num_ssts", "num_ssts_per_key")),
    "slatedb_merge_operator_operands_total": ("path", ("read", "flush")),
}


def moved(metrics: Metrics) -> dict[str, float]:
    """Return the counters that are not 0."""
    found = {name: metrics.counter(name, **labels).value for name, labels in COUNTERS.items()}
    for name, (label, values) in SPLIT.items():
        found |= {f"{name} {value}": metrics.counter(name, **{label: value}).value for value in values}
    return {name: value for name, value in found.items() if value}


def histogram(metrics: Metrics, name: str) -> dict[str, float]:
    """Return the number and the sum of the observations."""
    return {
        sample.name.removeprefix(f"{name}_"): sample.value
        for sample in metrics.histogram(name).samples(name)
        if not sample.name.endswith("_bucket")
    }


EVENTS: list[tuple[Callable[[WriterInstruments], object], dict[str, float]]] = [
    (lambda each: each.wal_flushed(700, 0.2), {"slatedb_wal_flushes_total": 1, "slatedb_wal_flush_bytes_total": 700}),
    (lambda each: each.wal_flush_requested(), {"slatedb_wal_flush_requests_total": 1}),
    (lambda each: each.wal_replayed(3), {"slatedb_wal_replayed_objects_total": 3}),
    (lambda each: each.table_frozen(), {"slatedb_memtable_flush_freezes_total": 1}),
    (lambda each: each.flush_requested(), {"slatedb_memtable_flush_flush_requests_total": 1}),
    (lambda each: each.checkpoint_requested(), {"slatedb_memtable_flush_checkpoint_requests_total": 1}),
    (lambda each: each.checkpoint_made(), {"slatedb_checkpoint_operations_total": 1}),
    (lambda each: each.l0_uploaded(), {"slatedb_memtable_flush_l0_uploads_total": 1}),
    (
        lambda each: each.l0_flushed(3, 900),
        {
            "slatedb_memtable_flush_l0_flushes_total": 1,
            "slatedb_db_immutable_memtable_flushes_total": 3,
            "slatedb_db_l0_flush_bytes_total": 900,
        },
    ),
    (lambda each: each.manifest_refreshed(), {"slatedb_memtable_flush_manifest_refreshes_total": 1}),
    (lambda each: each.fenced(), {"slatedb_fenced_total": 1}),
    (lambda each: each.stalled("num_ssts"), {"slatedb_db_l0_stalls_total num_ssts": 1}),
    (lambda each: each.stalled("num_ssts_per_key"), {"slatedb_db_l0_stalls_total num_ssts_per_key": 1}),
    (lambda each: each.operands_folded("read", 4), {"slatedb_merge_operator_operands_total read": 4}),
    (lambda each: each.operands_folded("flush", 5), {"slatedb_merge_operator_operands_total flush": 5}),
    (lambda each: each.operand_failures(2), {"slatedb_merge_operator_failures_total": 2}),
]


@pytest.mark.parametrize(("event", "expected"), EVENTS)
def test_an_event_moves_its_counters_and_no_others(
    event: Callable[[WriterInstruments], object], expected: dict[str, float]
) -> None:
    metrics = Metrics(db="db")
    event(WriterInstruments(metrics))
    assert moved(metrics) == expected


def test_the_wait_of_the_oldest_row_is_never_negative() -> None:
    """A wall clock may go back between a commit and the end of its PUT."""
    metrics = Metrics(db="db")
    instruments = WriterInstruments(metrics)
    for waited_s in (0.25, -3.0, 0.5):
        instruments.wal_flushed(1, waited_s)
    assert histogram(metrics, "slatedb_db_durable_commit_duration_seconds") == {"count": 3, "sum": 0.75}
    instruments.wal_replay_seconds(2.5)
    assert histogram(metrics, "slatedb_wal_replay_duration_seconds") == {"count": 1, "sum": 2.5}


def test_a_counting_operator_counts_and_does_its_work() -> None:
    metrics = Metrics(db="db")
    instruments = WriterInstruments(metrics)
    operator = instruments.counting(concatenate, "read")
    assert operator is not None
    assert operator(b"k", b"0", [b"1", b"2"]) == b"012"
    assert operator(b"k", None, [b"3"]) == b"3"
    assert moved(metrics) == {"slatedb_merge_operator_operands_total read": 3}
    assert instruments.counting(None, "read") is None


def test_the_gauges_describe_all_trees_of_a_manifest() -> None:
    """The views 1 and 2 show one SST; so do two of different trees."""
    metrics = Metrics(db="db")
    manifest = Manifest(
        tree=tree((7,), (run_of(2, 3, 4), run_of(1, 5))),
        segments=(
            Segment(prefix=b"a", tree=tree((8, 9, 10), (run_of(3, 3),))),
            Segment(prefix=b"b", tree=tree((11, 12))),
        ),
        external_dbs=tuple(ExternalDb(path=path, source_checkpoint_id=UUID(int=1)) for path in ("x", "y")),
    )
    WriterInstruments(metrics).describe(manifest)
    gauges = {
        name: metrics.gauge(f"slatedb_db_{name}").value
        for name in ("l0_ssts", "segment_max_l0_ssts", "sorted_runs", "sst_views", "ssts", "external_dbs")
    }
    assert gauges == {
        "l0_ssts": 6,
        "segment_max_l0_ssts": 3,
        "sorted_runs": 3,
        "sst_views": 10,
        "ssts": 9,
        "external_dbs": 2,
    }


def test_growing_totals_and_levels_are_exported_before_each_scrape() -> None:
    metrics, now = Metrics(db="db"), {"writes": 5, "puts": 1, "level": 9}
    instruments = WriterInstruments(metrics)
    instruments.export(
        {"slatedb_db_write_ops_total": lambda: now["writes"]}, {"slatedb_wal_buffer_bytes": lambda: now["level"]}
    )
    instruments.export_requests({"put": lambda: now["puts"]})

    def shown() -> tuple[float, ...]:
        return (
            metrics.counter("slatedb_db_write_ops_total").value,
            metrics.gauge("slatedb_wal_buffer_bytes").value,
            metrics.counter("slatedb_db_requests_total", op="put").value,
        )

    assert shown() == (0, 0, 0)
    for totals in ((5, 9, 1), (5, 9, 1), (12, 4, 3), (13, 0, 3)):
        now.update(zip(now, (totals[0], totals[2], totals[1]), strict=True))
        metrics.refresh()
        assert shown() == totals


def test_a_writer_exports_its_totals_and_levels() -> None:
    metrics = Metrics(db="db")
    totals = ("write_ops", "write_batches", "backpressure", "memtable_write_bytes")
    levels = ("db_unflushed_bytes", "db_transaction_history_bytes", "wal_buffer_bytes", "wal_puts_in_flight")
    limits = ("manifest_writer_epoch", "db_unflushed_limit_bytes", "db_l0_limit_ssts")

    def total(name: str) -> float:
        return metrics.counter(f"slatedb_db_{name}_total").value

    def level(name: str) -> float:
        return metrics.gauge(f"slatedb_{name}").value

    async def scenario() -> None:
        store = MemoryStore()
        for limit in (100_000, 200_000):
            options = {"max_unflushed_bytes": limit, "l0_sst_size_bytes": 50_000, "l0_max_ssts": 9}
            db = await shale.Db.open("db", store=store, metrics=metrics, flush_interval=None, **options)
            if limit == 100_000:
                await db.close()
        assert [level(name) for name in limits] == [2, 200_000, 9]
        transaction = await db.transaction()
        await db.put(b"key", b"value")
        async with db.batch() as batch:
            batch.put(b"a", b"1")
            batch.delete(b"bb")
        metrics.refresh()
        assert [total(name) for name in totals] == [3, 1, 0, 12]
        assert [level(name) for name in levels] == [2 * (12 + 3 * 28), 0, 12 + 3 * 28, 0]
        fence = level("wal_last_id")
        await db.flush("wal")
        metrics.refresh()
        assert [level(name) for name in levels] == [12 + 3 * 28, 0, 0, 0]
        assert level("wal_last_id") == fence + 1
        await db.flush("memtable")
        metrics.refresh()
        assert [total(name) for name in totals] == [3, 1, 0, 12]
        assert [level(name) for name in levels] == [0, 6 + 3 * 16, 0, 0], "the keys that may conflict are kept"
        assert level("db_l0_ssts") == 1
        await transaction.close()
        await db.close()

    anyio.run(scenario)
