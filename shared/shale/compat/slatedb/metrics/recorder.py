"""Metrics recorders: the interface that programs implement, and SlateDB's default implementation."""

import bisect
import math
import threading
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

from shale.compat.slatedb.handles import Handle
from shale.compat.slatedb.types.enums import MetricValue
from shale.compat.slatedb.types.records import HistogramMetricValue, Metric, MetricLabel


class Counter:
    """A number that grows."""

    def increment(self, value: int) -> None:
        """Add ``value``."""
        raise NotImplementedError


class Gauge:
    """A number that is set."""

    def set(self, value: int) -> None:
        """Set the value."""
        raise NotImplementedError


class UpDownCounter:
    """A number that rises and falls."""

    def increment(self, value: int) -> None:
        """Add ``value``, which may be negative."""
        raise NotImplementedError


class Histogram:
    """A distribution."""

    def record(self, value: float) -> None:
        """Record one observation."""
        raise NotImplementedError


class MetricsRecorder:
    """The registry of a database's metrics; subclass it."""

    def register_counter(self, name: str, description: str | None, labels: list[MetricLabel]) -> Counter:
        """Register a counter, once per set of labels."""
        raise NotImplementedError

    def register_gauge(self, name: str, description: str | None, labels: list[MetricLabel]) -> Gauge:
        """Register a gauge."""
        raise NotImplementedError

    def register_up_down_counter(self, name: str, description: str | None, labels: list[MetricLabel]) -> UpDownCounter:
        """Register a counter that may fall."""
        raise NotImplementedError

    def register_histogram(
        self, name: str, description: str | None, labels: list[MetricLabel], boundaries: list[float]
    ) -> Histogram:
        """Register a histogram with these upper bounds of its buckets."""
        raise NotImplementedError


class MetricsRecorderImpl(Handle, MetricsRecorder):
    """A recorder of the binding itself; it gives out none."""


class _Number:
    """A number of the default recorder."""

    _variant: ClassVar[Any]

    def __init__(self) -> None:
        self._value = 0

    def increment(self, value: int) -> None:
        """Add ``value``."""
        self._value += value

    def _read(self) -> MetricValue:
        read: MetricValue = self._variant(self._value)
        return read


class CounterImpl(_Number, Counter):
    """A counter of the default recorder."""

    _variant = MetricValue.COUNTER


class UpDownCounterImpl(_Number, UpDownCounter):
    """A counter of the default recorder that may fall."""

    _variant = MetricValue.UP_DOWN_COUNTER


class GaugeImpl(Gauge):
    """A gauge of the default recorder."""

    def __init__(self) -> None:
        self._value = 0

    def set(self, value: int) -> None:
        """See ``Gauge``."""
        self._value = value

    def _read(self) -> MetricValue:
        read: MetricValue = MetricValue.GAUGE(self._value)
        return read


class HistogramImpl(Histogram):
    """A histogram of the default recorder."""

    def __init__(self, boundaries: list[float]) -> None:
        self._boundaries = list(boundaries)
        self._counts = [0] * (len(boundaries) + 1)
        self._sum = 0.0
        self._min, self._max = math.inf, -math.inf

    def record(self, value: float) -> None:
        """See ``Histogram``; a value on a boundary belongs below it."""
        self._counts[bisect.bisect_left(self._boundaries, value)] += 1
        self._sum += value
        self._min, self._max = min(self._min, value), max(self._max, value)

    def _read(self) -> MetricValue:
        value = HistogramMetricValue(
            count=sum(self._counts),
            sum=self._sum,
            min=self._min,
            max=self._max,
            boundaries=list(self._boundaries),
            bucket_counts=list(self._counts),
        )
        read: MetricValue = MetricValue.HISTOGRAM(value)
        return read


_Kept: TypeAlias = CounterImpl | GaugeImpl | UpDownCounterImpl | HistogramImpl

K = TypeVar("K", CounterImpl, GaugeImpl, UpDownCounterImpl, HistogramImpl)


class DefaultMetricsRecorder(MetricsRecorder):
    """Keeps all metrics in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[Metric, _Kept]] = {}
        self._before_reading: list[Callable[[], None]] = []

    def snapshot(self) -> list[Metric]:
        """Return the current values of all metrics."""
        for refresh in list(self._before_reading):
            refresh()
        with self._lock:
            return [
                Metric(name=known.name, labels=list(known.labels), description=known.description, value=kept._read())
                for known, kept in self._kept.values()
            ]

    def metrics_by_name(self, name: str) -> list[Metric]:
        """Return the metrics of one name, with all their labels."""
        return [metric for metric in self.snapshot() if metric.name == name]

    def metric_by_name_and_labels(self, name: str, labels: list[MetricLabel]) -> Metric | None:
        """Return the metric with these labels, in any order."""
        wanted = _sorted(labels)
        return next((metric for metric in self.metrics_by_name(name) if _sorted(metric.labels) == wanted), None)

    def register_counter(self, name: str, description: str | None, labels: list[MetricLabel]) -> Counter:
        """See ``MetricsRecorder``."""
        return self._register(name, description, labels, CounterImpl)

    def register_gauge(self, name: str, description: str | None, labels: list[MetricLabel]) -> Gauge:
        """See ``MetricsRecorder``."""
        return self._register(name, description, labels, GaugeImpl)

    def register_up_down_counter(self, name: str, description: str | None, labels: list[MetricLabel]) -> UpDownCounter:
        """See ``MetricsRecorder``."""
        return self._register(name, description, labels, UpDownCounterImpl)

    def register_histogram(
        self, name: str, description: str | None, labels: list[MetricLabel], boundaries: list[float]
    ) -> Histogram:
        """See ``MetricsRecorder``."""
        return self._register(name, description, labels, lambda: HistogramImpl(boundaries))

    def _register(self, name: str, description: str | None, labels: list[MetricLabel], make: Callable[[], K]) -> K:
        with self._lock:
            key = (name, _sorted(labels))
            if key not in self._kept:
                kept = make()
                first = Metric(name=name, labels=list(labels), description=description or "", value=kept._read())
                self._kept[key] = first, kept
            registered = self._kept[key][1]
        return cast("K", registered)


def before_reading(recorder: MetricsRecorder, refresh: Callable[[], None]) -> None:
    """Let the default recorder call ``refresh`` before it is read; other recorders get periodic updates."""
    if isinstance(recorder, DefaultMetricsRecorder):
        recorder._before_reading.append(refresh)


def after_reading(recorder: MetricsRecorder, refresh: Callable[[], None]) -> None:
    """Undo ``before_reading``, so that the owner of ``refresh`` can be freed."""
    if isinstance(recorder, DefaultMetricsRecorder) and refresh in recorder._before_reading:
        recorder._before_reading.remove(refresh)


def _sorted(labels: list[MetricLabel]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((label.key, label.value) for label in labels))
