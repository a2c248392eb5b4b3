"""The metrics of the protocol: every series exists before its first event, and counts its own."""

from collections.abc import Callable
from typing import Any

import pytest

from shale.protocol.instruments import BoundaryInstruments, SequencedInstruments, UpdateInstruments, VersionInstruments
from shale.telemetry.metrics import Metrics


def changed(metrics: Metrics, call: Callable[[], Any]) -> dict[tuple[str, str], float]:
    """Return the samples that a call changes, by name and labels, with their new values."""

    def samples() -> dict[tuple[str, str], float]:
        return {
            (sample.name, ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()) if k not in ("db", "le"))):
            sample.value
            for family in metrics.registry.collect()
            for sample in family.samples
            if not sample.name.endswith(("_bucket", "_created"))
        }  # fmt: skip

    before = samples()
    call()
    return {key: value for key, value in samples().items() if before.get(key) != value}


READS = "slatedb_sequenced_latest_reads_total"


def test_reads_of_the_newest_version() -> None:
    metrics = Metrics()
    instruments = SequencedInstruments(metrics, "compactions")
    for name in ("hit", "cold", "list_fallback"):
        assert changed(metrics, getattr(instruments, name)) == {(READS, f"resource=compactions,result={name}"): 1}
    assert changed(metrics, lambda: instruments.probed(3)) == {
        ("slatedb_sequenced_read_probes_count", "resource=compactions"): 1,
        ("slatedb_sequenced_read_probes_sum", "resource=compactions"): 3,
    }


@pytest.mark.parametrize("result", ["ok", "stale", "error"])
@pytest.mark.parametrize(("cached", "label"), [(True, "true"), (False, "false")])
def test_checks_of_a_boundary(result: str, cached: bool, label: str) -> None:
    metrics = Metrics()
    instruments = BoundaryInstruments(metrics, "manifest")
    assert changed(metrics, lambda: instruments.checked(result, cached=cached)) == {
        ("slatedb_boundary_checks_total", f"cached={label},resource=manifest,result={result}"): 1
    }


def test_advances_of_a_boundary() -> None:
    metrics = Metrics()
    instruments = BoundaryInstruments(metrics, "manifest")
    for result in ("ok", "noop", "conflict", "error"):
        assert changed(metrics, lambda result=result: instruments.advanced(result)) == {
            ("slatedb_boundary_advances_total", f"resource=manifest,result={result}"): 1
        }
    assert changed(metrics, lambda: instruments.value(7)) == {("slatedb_boundary_value", "resource=manifest"): 7}
    assert changed(metrics, lambda: instruments.check_seconds(2.0)) == {
        ("slatedb_boundary_check_duration_seconds_count", "resource=manifest"): 1,
        ("slatedb_boundary_check_duration_seconds_sum", "resource=manifest"): 2,
    }


@pytest.mark.parametrize("resource", ["manifest", "compactions"])
def test_only_manifests_have_gauges(resource: str) -> None:
    metrics = Metrics()
    instruments = VersionInstruments(metrics, resource)
    gauges = {("slatedb_manifest_id", ""): 5, ("slatedb_manifest_bytes", ""): 100}
    is_manifest = resource == "manifest"
    assert changed(metrics, lambda: instruments.seen(5, 100)) == (gauges if is_manifest else {})
    written = {("slatedb_manifest_id", ""): 6, ("slatedb_manifest_written_timestamp_seconds", ""): 1.5}
    assert changed(metrics, lambda: instruments.committed(6, 100, 1500)) == (written if is_manifest else {})
    for call, name, labels in (
        (instruments.corrupt, "slatedb_corruption_total", f"resource={resource}"),
        (instruments.rejected_write, "slatedb_boundary_rejected_writes_total", f"resource={resource}"),
        (instruments.invalidated, READS, f"resource={resource},result=invalidated"),
    ):
        assert changed(metrics, call) == {(name, labels): 1}


def test_updates_of_manifests_are_counted_by_component_and_measured() -> None:
    metrics = Metrics()
    instruments = UpdateInstruments(metrics, "manifest", "writer")
    for result in ("ok", "conflict", "fenced", "stale", "error"):
        assert changed(metrics, lambda result=result: instruments.attempt(result)) == {
            ("slatedb_manifest_update_attempts_total", f"component=writer,result={result}"): 1
        }
    assert changed(metrics, lambda: instruments.seconds(3.0)) == {
        ("slatedb_manifest_update_duration_seconds_count", "component=writer"): 1,
        ("slatedb_manifest_update_duration_seconds_sum", "component=writer"): 3,
    }


def test_updates_of_compactions_are_counted() -> None:
    metrics = Metrics()
    instruments = UpdateInstruments(metrics, "compactions", "coordinator")
    for number, (result, counted) in enumerate(
        (("ok", "ok"), ("conflict", "conflict"), ("fenced", "fenced"), ("error", "error"), ("stale", "conflict"))
    ):
        assert changed(metrics, lambda result=result: instruments.attempt(result)) == {
            ("slatedb_compactions_writes_total", f"result={counted}"): 1 if number < 4 else 2
        }
    assert changed(metrics, lambda: instruments.seconds(3.0)) == {}
