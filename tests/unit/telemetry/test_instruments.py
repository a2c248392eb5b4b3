"""Our instruments are exposed as those of the Prometheus client library."""

from collections.abc import Callable
from typing import Any

import prometheus_client as library
import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from shale.telemetry.catalogue import CATALOGUE
from shale.telemetry.instruments import Counter
from shale.telemetry.metrics import Metrics
from shale.telemetry.spec import MetricKind

AMOUNTS = (0.0, 0.00001, 0.001, 0.3, 7.0, 1e9)


def lines(encode: Callable[[Any], bytes], registry: library.CollectorRegistry) -> list[str]:
    """Return the exposition without the series of creation times, which only the library keeps."""
    return [line for line in encode(registry).decode().splitlines() if "_created" not in line]


@pytest.mark.parametrize("encode", [generate_latest, generate_openmetrics])
@pytest.mark.parametrize("kind", MetricKind)
def test_the_exposition_is_that_of_the_library(kind: MetricKind, encode: Callable[[Any], bytes]) -> None:
    """One metric of each kind, with one child."""
    spec = next(
        spec
        for spec in CATALOGUE.values()
        if spec.kind is kind and spec.labels == ("db",) and (kind is not MetricKind.HISTOGRAM or spec.buckets)
    )
    reference = library.CollectorRegistry()
    metrics = Metrics(db='a "quoted" name')
    ours: Any
    theirs: Any
    if kind is MetricKind.COUNTER:
        ours = metrics.counter(spec.name)
        theirs = library.Counter(spec.name, spec.help, spec.labels, registry=reference)
    elif kind is MetricKind.GAUGE:
        ours = metrics.gauge(spec.name)
        theirs = library.Gauge(spec.name, spec.help, spec.labels, registry=reference)
    else:
        ours = metrics.histogram(spec.name)
        theirs = library.Histogram(spec.name, spec.help, spec.labels, registry=reference, buckets=spec.buckets)
    change = {MetricKind.COUNTER: "inc", MetricKind.GAUGE: "set", MetricKind.HISTOGRAM: "observe"}[kind]
    for amount in (*AMOUNTS, *spec.buckets):
        getattr(ours, change)(amount)
        getattr(theirs.labels(db='a "quoted" name'), change)(amount)
    assert lines(encode, metrics.registry) == lines(encode, reference)


def test_values_from_before_the_first_exposition_are_in_it() -> None:
    """Also those of another database of the process, in a registry that the caller brings or not."""
    own = library.CollectorRegistry()
    for metrics, registry in ((Metrics(db="a"), None), (Metrics(db="a", registry=own), own)):
        other = metrics.for_database("b")
        metrics.counter("slatedb_db_write_ops_total").inc(2)
        other.counter("slatedb_db_write_ops_total").inc(3)
        assert registry is None or metrics.registry is registry
        assert other.registry is metrics.registry
        values = {db: metrics.registry.get_sample_value("slatedb_db_write_ops_total", {"db": db}) for db in "ab"}
        assert values == {"a": 2, "b": 3}


def test_counters_only_grow() -> None:
    """A negative amount is a mistake of the caller."""
    counter = Counter(CATALOGUE["shale_build_info"])
    with pytest.raises(AssertionError):
        counter.inc(-1)


def test_a_missing_label_fails_at_once() -> None:
    """As a name or a value that the catalogue does not have."""
    with pytest.raises(AssertionError, match="labels"):
        Metrics(db="a").counter("slatedb_db_requests_total")
