"""Numbers over time, from the history: throughput, latency, errors, and which writer served."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from tests.soak.checker.views import WRITERS
from tests.soak.history.operation import FINAL, NEVER, Operation

BUCKETS = 240


@dataclass
class Bucket:
    """What happened in one stretch of time."""

    counts: dict[str, int] = field(default_factory=lambda: {"ok": 0, "fail": 0, "unknown": 0})
    latencies: list[float] = field(default_factory=list)


@dataclass
class Series:
    """The history in stretches of equal length."""

    begin: float
    width_s: float
    buckets: list[Bucket]
    by_interface: dict[str, dict[str, int]]
    by_function: dict[str, dict[str, int]]
    takeovers: list[tuple[float, str]]
    """When a process answered its first request as the writer, and its name."""
    longest_pause_s: float
    """The longest time without an acknowledged write."""

    def rates(self, outcome: str) -> list[float]:
        """Return operations per second."""
        return [bucket.counts[outcome] / self.width_s for bucket in self.buckets]

    def latency(self, share: float) -> list[float]:
        """Return a percentile in milliseconds; 0 without an operation."""
        found = []
        for bucket in self.buckets:
            ordered = sorted(bucket.latencies)
            found.append(ordered[int(share * (len(ordered) - 1))] * 1000 if ordered else 0.0)
        return found


def series_of(history: Iterable[Operation], begin: float, end: float) -> Series:
    """Summarize the operations of clients that ended in this time."""
    width_s = max((end - begin) / BUCKETS, 0.1)
    buckets = [Bucket() for _ in range(BUCKETS)]
    by_interface: dict[str, dict[str, int]] = {}
    by_function: dict[str, dict[str, int]] = {}
    first: dict[str, float] = {}
    acknowledged: list[float] = []
    for operation in history:
        if operation.session == FINAL or operation.end > end:
            continue
        for table, name in ((by_interface, operation.interface), (by_function, operation.function)):
            counts = table.setdefault(name, {"ok": 0, "fail": 0, "unknown": 0})
            counts[operation.outcome] += 1
        bucket = buckets[min(BUCKETS - 1, max(0, int((operation.end - begin) / width_s)))]
        bucket.counts[operation.outcome] += 1
        if operation.outcome == "ok":
            bucket.latencies.append(operation.end - operation.start)
            if operation.interface in WRITERS:
                first[operation.served_by] = min(first.get(operation.served_by, NEVER), operation.start)
                if operation.function != "read":
                    acknowledged.append(operation.end)
    acknowledged.sort()
    points = [begin, *(at for at in acknowledged if begin <= at <= end), end]
    gap_s = max((after - before for before, after in pairwise(points)), default=0.0)
    takeovers = sorted((at, name) for name, at in first.items())
    return Series(begin, width_s, buckets, by_interface, by_function, takeovers, gap_s)
