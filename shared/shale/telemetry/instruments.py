"""Counters, gauges and histograms, and their exposition through the Prometheus client library.

The library imports a web server and takes as long to import as ten of our packages, so it is imported by the first
process that reads its metrics.  Values are plain attributes: a change is one addition, and the interpreter switches
threads only between such changes.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from shale.telemetry.spec import MetricKind, MetricSpec

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class Sample(NamedTuple):
    """A sample: the labels besides those of its metric, and the trace and the value of its exemplar."""

    name: str
    labels: dict[str, str]
    value: float
    exemplar: tuple[str, float] | None = None


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self, spec: MetricSpec) -> None:  # noqa: ARG002 - all instruments are made alike
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        """Add ``amount``, which is not negative."""
        assert amount >= 0, "counters only grow"
        self.value += amount

    def samples(self, name: str) -> Iterator[Sample]:
        """Yield every sample."""
        yield Sample(name, {}, self.value)


class Gauge:
    """A number that changes."""

    __slots__ = ("value",)

    def __init__(self, spec: MetricSpec) -> None:  # noqa: ARG002
        self.value = 0.0

    def set(self, value: float) -> None:
        """Replace the number."""
        self.value = float(value)

    def inc(self, amount: float = 1) -> None:
        """Add ``amount``."""
        self.value += amount

    def dec(self, amount: float = 1) -> None:
        """Subtract ``amount``."""
        self.value -= amount

    def samples(self, name: str) -> Iterator[Sample]:
        """See ``Counter``."""
        yield Sample(name, {}, self.value)


class Histogram:
    """Counts observations by size."""

    __slots__ = ("_bounds", "_counts", "_sum", "_traces")

    def __init__(self, spec: MetricSpec) -> None:
        self._bounds = spec.buckets
        self._counts = [0] * (len(spec.buckets) + 1)
        self._sum = 0.0
        self._traces: dict[int, tuple[str, float]] = {}

    def observe(self, amount: float, count: int = 1) -> None:
        """Count equal observations, one by default; a bound belongs to the bucket below it."""
        self._sum += amount * count
        self._counts[bisect_left(self._bounds, amount)] += count

    def observe_traced(self, amount: float, trace_id: str) -> None:
        """Count one observation and keep its trace as the exemplar of its bucket."""
        self.observe(amount)
        self.set_exemplar(amount, trace_id)

    def set_exemplar(self, amount: float, trace_id: str) -> None:
        """Keep the trace of an observation as the exemplar of its bucket."""
        self._traces[bisect_left(self._bounds, amount)] = (trace_id, amount)

    def samples(self, name: str) -> Iterator[Sample]:
        """See ``Counter``."""
        from prometheus_client.utils import floatToGoString

        total = 0
        for number, (bound, count) in enumerate(zip((*self._bounds, inf), tuple(self._counts), strict=True)):
            total += count
            le = floatToGoString(bound)  # type: ignore[no-untyped-call]
            yield Sample(f"{name}_bucket", {"le": le}, float(total), self._traces.get(number))
        yield Sample(f"{name}_count", {}, float(total))
        yield Sample(f"{name}_sum", {}, self._sum)


Instrument = Counter | Gauge | Histogram

KINDS: Mapping[MetricKind, type[Counter] | type[Gauge] | type[Histogram]] = {
    MetricKind.COUNTER: Counter,
    MetricKind.GAUGE: Gauge,
    MetricKind.HISTOGRAM: Histogram,
}


class Family:
    """One metric of the catalogue: an instrument for each combination of label values."""

    __slots__ = ("_children", "spec")

    def __init__(self, spec: MetricSpec) -> None:
        self.spec = spec
        self._children: dict[tuple[str, ...], Instrument] = {}
        if not spec.labels:
            self.child(())

    def child(self, values: tuple[str, ...]) -> Instrument:
        """Return the instrument of these label values, in the order of the row."""
        found = self._children.get(values)
        return found if found is not None else self._children.setdefault(values, KINDS[self.spec.kind](self.spec))

    def collect(self) -> "Metric":
        """Return the present values, as the client library exposes them."""
        from prometheus_client.metrics_core import Metric
        from prometheus_client.samples import Exemplar

        spec = self.spec
        metric = Metric(spec.name.removesuffix("_total"), spec.help, str(spec.kind))
        for values, child in tuple(self._children.items()):
            labels = dict(zip(spec.labels, values, strict=True))
            for name, additional, value, traced in child.samples(spec.name):
                exemplar = None if traced is None else Exemplar({"trace_id": traced[0]}, traced[1])
                metric.add_sample(name, labels | additional, value, exemplar=exemplar)
        return metric


class Exposition:
    """The families of one process, as a collector of the client library."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        self._families = families

    def collect(self) -> "Iterator[Metric]":
        """Yield every metric; the client library calls this."""
        for family in tuple(self._families.values()):
            yield family.collect()
