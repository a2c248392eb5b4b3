"""Counters, gauges and histograms of one process, by the names of the catalogue.

A part asks once for the children it needs and keeps them; a name or a label value outside the catalogue
fails at once.  Where the values of a metric's labels are closed sets, the first use makes
every child, so that a rate over a counter that never moved is 0 and not "no data".  Hot paths count in plain
integers and register a ``before_scrape`` hook instead.

The client library imports a web server, so it is imported only by processes that count.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, cast

from shale.telemetry.catalogue import CATALOGUE
from shale.telemetry.spec import IDENTITY_LABELS, MetricKind, MetricSpec

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

CHILDREN_MAX = 64
"""Larger products of label values are created on use: most of their combinations cannot occur."""


class Metrics:
    """All metrics of one database in one process."""

    def __init__(self, *, db: str = "", registry: "CollectorRegistry | None" = None) -> None:
        from prometheus_client import CollectorRegistry

        self.registry = registry if registry is not None else CollectorRegistry()
        self._db = db
        self._families: dict[str, Counter | Gauge | Histogram] = {}
        self._before_scrape: list[Callable[[], None]] = []
        self._children_made: set[tuple[str, ...]] = set()

    def for_database(self, db: str) -> "Metrics":
        """Return the same metrics for another database of the process."""
        other = Metrics(db=db, registry=self.registry)
        other._families = self._families
        other._before_scrape = self._before_scrape
        return other

    def counter(self, name: str, **labels: str) -> "Counter":
        """Return the counter with these labels; ``db`` is added where the metric has it."""
        return cast("Counter", self._child(MetricKind.COUNTER, name, labels))

    def gauge(self, name: str, **labels: str) -> "Gauge":
        """Return the gauge with these labels."""
        return cast("Gauge", self._child(MetricKind.GAUGE, name, labels))

    def histogram(self, name: str, **labels: str) -> "Histogram":
        """Return the histogram with these labels."""
        return cast("Histogram", self._child(MetricKind.HISTOGRAM, name, labels))

    def before_scrape(self, hook: Callable[[], None]) -> None:
        """Call ``hook`` before every exposition: it moves plain integers into metrics."""
        self._before_scrape.append(hook)

    def refresh(self) -> None:
        """Run the hooks; the exposition calls this."""
        for hook in self._before_scrape:
            hook()

    def _child(self, kind: MetricKind, name: str, labels: dict[str, str]) -> "Counter | Gauge | Histogram":
        spec = CATALOGUE[name]
        assert spec.kind is kind, f"{name} is a {spec.kind}"
        for label, value in labels.items():
            closed = spec.closed_values(label)
            assert not closed or value in closed, f"{name}: {label}={value!r} is not in the catalogue"
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = self._family(spec)
        if "db" in spec.labels:
            labels = {"db": self._db, **labels}
        if not spec.labels:
            return family
        self._make_siblings(spec, family, labels)
        return family.labels(**labels)

    def _make_siblings(self, spec: MetricSpec, family: "Counter | Gauge | Histogram", labels: dict[str, str]) -> None:
        identity = (spec.name, *(labels[name] for name in spec.labels if name in IDENTITY_LABELS))
        if identity in self._children_made:
            return
        self._children_made.add(identity)
        for values in _children(spec, labels):
            family.labels(*values)

    def _family(self, spec: MetricSpec) -> "Counter | Gauge | Histogram":
        from prometheus_client import Counter, Gauge, Histogram

        match spec.kind:
            case MetricKind.COUNTER:
                return Counter(spec.name, spec.help, spec.labels, registry=self.registry)
            case MetricKind.GAUGE:
                return Gauge(spec.name, spec.help, spec.labels, registry=self.registry)
            case MetricKind.HISTOGRAM:
                return Histogram(spec.name, spec.help, spec.labels, registry=self.registry, buckets=spec.buckets)


def _children(spec: MetricSpec, labels: dict[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield every combination of label values for one database and identity; none if a set is open or large."""
    choices: list[tuple[str, ...]] = []
    size = 1
    for name in spec.labels:
        values = (labels[name],) if name == "db" or name in IDENTITY_LABELS else spec.closed_values(name)
        if not values:
            return
        choices.append(values)
        size *= len(values)
    if size <= CHILDREN_MAX:
        yield from product(*choices)
