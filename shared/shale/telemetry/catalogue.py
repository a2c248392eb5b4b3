"""The one list of metric names (docs/operations.md, "Metrics")."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a metric is for Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One row of the catalogue; ``labels`` in the order of the documentation."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ("db",)
    buckets: tuple[float, ...] = ()


CATALOGUE: dict[str, MetricSpec] = {}
