"""Counters, gauges and histograms of one process, by the names of the catalogue.

A part asks once for the children it needs and keeps them; a name that the catalogue does not hold is a mistake of
ours and fails at once.  Hot paths count in plain integers and register a ``before_scrape`` hook instead.
"""

from collections.abc import Callable
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from shale.telemetry.catalogue import CATALOGUE, Kind, MetricSpec

M = TypeVar("M", Counter, Gauge, Histogram)


class Metrics:
    """All metrics of one database in one process."""

    def __init__(self, *, db: str = "", registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self._db = db
        self._families: dict[str, Counter | Gauge | Histogram] = {}
        self._before_scrape: list[Callable[[], None]] = []

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter child with these labels; ``db`` is added where the metric has it."""
        return self._child(Counter, Kind.COUNTER, name, labels)

    def gauge(self, name: str, **labels: str) -> Gauge:
        """The gauge child with these labels."""
        return self._child(Gauge, Kind.GAUGE, name, labels)

    def histogram(self, name: str, **labels: str) -> Histogram:
        """The histogram child with these labels."""
        return self._child(Histogram, Kind.HISTOGRAM, name, labels)

    def before_scrape(self, hook: Callable[[], None]) -> None:
        """Call ``hook`` before every exposition: it moves plain integers into metrics."""
        self._before_scrape.append(hook)

    def refresh(self) -> None:
        """Run the hooks; the exposition calls this."""
        for hook in self._before_scrape:
            hook()

    def _child(self, type_: type[M], kind: Kind, name: str, labels: dict[str, str]) -> M:
        spec = CATALOGUE[name]
        assert spec.kind is kind, f"{name} is a {spec.kind}"
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = self._family(spec)
        assert isinstance(family, type_)
        if "db" in spec.labels:
            labels = {"db": self._db, **labels}
        return family.labels(**labels) if spec.labels else family

    def _family(self, spec: MetricSpec) -> Counter | Gauge | Histogram:
        match spec.kind:
            case Kind.COUNTER:
                return Counter(spec.name, spec.help, spec.labels, registry=self.registry)
            case Kind.GAUGE:
                return Gauge(spec.name, spec.help, spec.labels, registry=self.registry)
            case Kind.HISTOGRAM:
                return Histogram(spec.name, spec.help, spec.labels, registry=self.registry, buckets=spec.buckets)
