"""The rows of the metric catalogue, and the label values and bucket bounds that they share."""

from dataclasses import field
from enum import StrEnum

from shale.core.lazy_dataclass import dataclass


class MetricKind(StrEnum):
    """The type of a metric in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One row of the catalogue; ``labels`` in the order of the documentation.

    ``values`` narrows a label to the values that this metric can have; ``LABEL_VALUES`` holds the general sets.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ("db",)
    buckets: tuple[float, ...] = ()
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def closed_values(self, label: str) -> tuple[str, ...] | None:
        """Return every value of the label, or ``None`` if the set is known only at run time."""
        return self.values.get(label, LABEL_VALUES.get(label))


FAST_SECONDS = (
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5,
)  # fmt: skip
"""Memtable and cached reads, event-loop lag."""

STORE_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Object store and durable commit: SlateDB's twelve bounds first, so that quantiles compare."""

JOB_SECONDS = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0)
"""Compactions and garbage collection passes."""

SIZE_BYTES = tuple(float(2**power) for power in range(8, 31, 2))

PROBES = (0.0, 1.0, 2.0, 3.0, 4.0)

LABEL_VALUES: dict[str, tuple[str, ...]] = {
    "api": (
        "get", "get_range", "get_ranges", "head", "list", "list_with_offset", "list_with_delimiter",
        "put", "multipart_init", "multipart_part", "multipart_complete", "delete",
    ),
    "cached": ("true", "false"),
    "component": ("writer", "reader", "compactor", "worker", "gc", "admin", "pipeline"),
    "entry_kind": ("filter", "index", "data_block", "stats"),
    "entry_type": ("value", "merge"),
    "error_type": (
        "network", "throttle", "timeout", "auth", "precondition", "memory", "corruption", "validation", "fenced",
        "internal",
    ),
    "kind": ("point", "prefix", "range"),
    "path": ("read", "flush", "compact"),
    "phase": ("read", "write", "commit"),
    "resource": ("manifest", "compactions", "wal", "wal_fence", "compacted", "detach", "staged"),
    "retryable": ("true", "false"),
    "role": ("active", "standby", "fenced", "draining", "failed"),
    "size_class": ("lt_64m", "lt_1g", "lt_16g", "ge_16g"),
    "state": ("active", "expired", "no_expiry"),
    "status": ("2xx", "3xx", "4xx", "5xx"),
    "store_type": ("main", "wal"),
    "term": ("min_age", "compactions", "newest_l0", "final"),
    "type": ("num_ssts", "num_ssts_per_key"),
}  # fmt: skip
"""The closed sets of docs/how-to/monitor.md; labels whose values depend on the metric are in its row."""

IDENTITY_LABELS = frozenset({"component", "store_type", "worker"})
"""Labels that identify the process or part: only the values in use get children."""

SEQUENCED = ("manifest", "compactions")
"""Resources that have sequenced files and boundaries."""
