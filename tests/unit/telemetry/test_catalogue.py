"""The catalogue follows the rules of docs/how-to/monitor.md."""

import re

import pytest

from shale.telemetry.catalogue import CATALOGUE
from shale.telemetry.metrics import Metrics
from shale.telemetry.spec import LABEL_VALUES, STORE_SECONDS, MetricKind, MetricSpec

ALL = pytest.mark.parametrize("spec", CATALOGUE.values(), ids=lambda spec: spec.name)


@ALL
def test_names_have_a_prefix_and_say_what_they_are(spec: MetricSpec) -> None:
    assert re.fullmatch(r"(slatedb|shale)(_[a-z0-9]+)+", spec.name)
    assert spec.name.endswith("_total") == (spec.kind is MetricKind.COUNTER)
    assert not re.search(r"_(count|sum|bucket|created|sec|ms|kb)$", spec.name)
    assert spec.help.endswith(".")
    assert spec.help[0].isupper()


@ALL
def test_engine_metrics_have_the_database_and_only_known_labels(spec: MetricSpec) -> None:
    if spec.name.startswith("slatedb_"):
        assert spec.labels[0] == "db"
    for label in spec.labels:
        open_set = label in {"db", "worker", "route", "version", "revision", "python_version", "formats", "sha256_8"}
        assert open_set or spec.closed_values(label) is not None, label
    assert set(spec.values) <= set(spec.labels)


@ALL
def test_histograms_have_ascending_bounds_and_nothing_else_has_any(spec: MetricSpec) -> None:
    assert bool(spec.buckets) == (spec.kind is MetricKind.HISTOGRAM)
    assert list(spec.buckets) == sorted(set(spec.buckets))


def test_the_store_bounds_begin_with_slatedb_s() -> None:
    assert STORE_SECONDS[:12] == (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def _count_series(metrics: Metrics) -> int:
    return sum(len(family.samples) for family in metrics.registry.collect())


def test_children_of_closed_sets_exist_before_anything_happens() -> None:
    metrics = Metrics(db="orders")
    metrics.counter("slatedb_db_requests_total", op="get")
    text = {
        (sample.name, sample.labels["op"])
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }
    assert text == {("slatedb_db_requests_total", op) for op in CATALOGUE["slatedb_db_requests_total"].values["op"]}


def test_children_are_made_only_for_the_components_that_count() -> None:
    metrics = Metrics(db="orders")
    metrics.counter("slatedb_manifest_update_attempts_total", component="writer", result="ok")
    components = {sample.labels["component"] for family in metrics.registry.collect() for sample in family.samples}
    assert components == {"writer"}


def test_everything_at_once_stays_in_the_series_budget() -> None:
    """One process that uses every metric with one component, which no process does, has at most 2,500 series."""
    metrics = Metrics(db="orders")
    apis = LABEL_VALUES["api"]
    for spec in CATALOGUE.values():
        labels = {label: (spec.closed_values(label) or ("w-0",))[0] for label in spec.labels if label != "db"}
        make = {
            MetricKind.COUNTER: metrics.counter,
            MetricKind.GAUGE: metrics.gauge,
            MetricKind.HISTOGRAM: metrics.histogram,
        }[spec.kind]
        if "api" not in labels:
            make(spec.name, **labels)
            continue
        for api in apis:
            make(spec.name, **{**labels, "api": api})
    assert _count_series(metrics) <= 2500


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        pytest.param("slatedb_made_up_total", {}, id="unknown name"),
        pytest.param("slatedb_db_requests_total", {"op": "fetch"}, id="value outside the closed set"),
        pytest.param("slatedb_db_l0_ssts", {}, id="not a counter"),
    ],
)
def test_what_is_not_in_the_catalogue_fails_at_once(name: str, labels: dict[str, str]) -> None:
    with pytest.raises((KeyError, AssertionError)):
        Metrics(db="orders").counter(name, **labels)
