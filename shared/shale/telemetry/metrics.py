"""Counters, gauges and histograms of one process, by the names of the catalogue.

A part asks once for the children it needs and keeps them; a name or a label value outside the catalogue
fails at once.  Where the values of a metric's labels are closed sets, the first use makes
every child, so that a rate over a counter that never moved is 0 and not "no data".  Hot paths count in plain
integers and register a ``before_scrape`` hook instead.

The client library is imported when ``registry`` is first used (``shale.telemetry.instruments``).
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, cast

from shale.telemetry.catalogue import CATALOGUE
from shale.telemetry.instruments import Counter, Exposition, Family, Gauge, Histogram, Instrument
from shale.telemetry.spec import IDENTITY_LABELS, MetricKind, MetricSpec

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

CHILDREN_MAX = 64
"""Larger products of label values are created on use: most of their combinations cannot occur."""


class Metrics:
    """All metrics of one database in one process."""

    def __init__(self, *, db: str = "", registry: "CollectorRegistry | None" = None) -> None:
        self._db = db
        self._families: dict[str, Family] = {}
        self._before_scrape: list[Callable[[], None]] = []
        self._children_made: set[tuple[str, ...]] = set()
        self._source = self
        self._registry = registry
        if registry is not None:
            registry.register(Exposition(self._families))

    @property
    def registry(self) -> "CollectorRegistry":
        """The client library's registry, which exposes these metrics."""
        source = self._source
        if source._registry is None:
            from prometheus_client import CollectorRegistry

            source._registry = CollectorRegistry()
            source._registry.register(Exposition(source._families))
        return source._registry

    def for_database(self, db: str) -> "Metrics":
        """Return the same metrics for another database of the process."""
        other = Metrics(db=db)
        other._families = self._families
        other._before_scrape = self._before_scrape
        other._source = self._source
        return other

    def counter(self, name: str, **labels: str) -> Counter:
        """Return the counter with these labels; ``db`` is added where the metric has it."""
        return cast("Counter", self._child(MetricKind.COUNTER, name, labels))

    def gauge(self, name: str, **labels: str) -> Gauge:
        """Return the gauge with these labels."""
        return cast("Gauge", self._child(MetricKind.GAUGE, name, labels))

    def histogram(self, name: str, **labels: str) -> Histogram:
        """Return the histogram with these labels."""
        return cast("Histogram", self._child(MetricKind.HISTOGRAM, name, labels))

    def before_scrape(self, hook: Callable[[], None]) -> None:
        """Call ``hook`` before every exposition: it moves plain integers into metrics."""
        self._before_scrape.append(hook)

    def refresh(self) -> None:
        """Run the hooks; the exposition calls this."""
        for hook in self._before_scrape:
            hook()

    def _child(self, kind: MetricKind, name: str, labels: dict[str, str]) -> Instrument:
        spec = CATALOGUE[name]
        assert spec.kind is kind, f"{name} is a {spec.kind}"
        for label, value in labels.items():
            closed = spec.closed_values(label)
            assert not closed or value in closed, f"{name}: {label}={value!r} is not in the catalogue"
        family = self._families.get(name)
        if family is None:
            family = self._families.setdefault(name, Family(spec))
        if "db" in spec.labels:
            labels = {"db": self._db, **labels}
        assert labels.keys() == set(spec.labels), f"{name} has the labels {spec.labels}, not {tuple(labels)}"
        if spec.labels:
            self._make_siblings(spec, family, labels)
        return family.child(tuple(labels[label] for label in spec.labels))

    def _make_siblings(self, spec: MetricSpec, family: Family, labels: dict[str, str]) -> None:
        identity = (spec.name, *(labels[name] for name in spec.labels if name in IDENTITY_LABELS))
        if identity in self._children_made:
            return
        self._children_made.add(identity)
        for values in _children(spec, labels):
            family.child(values)


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
