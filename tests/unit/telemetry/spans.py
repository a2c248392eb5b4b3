"""Spans that this process makes, on OpenTelemetry's own exporter in memory."""

from random import Random
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shale.env import Env, InlineCpu, SystemClock
from shale.telemetry.tracing import Tracing


class Spans:
    """Makes spans and returns those that have ended."""

    def __init__(self, ratio: float) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        env = Env(SystemClock(), Random(4), InlineCpu())
        self.traces = Tracing(provider.get_tracer("test"), env, ratio=ratio, attributes={"db.namespace": "orders"})

    def ended(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the spans of this name that have ended."""
        return [span for span in self.ended() if span.name == name]

    def children(self, parent: ReadableSpan) -> list[ReadableSpan]:
        """Return the spans below another one, in the order in which they began."""
        assert parent.context is not None
        below = [each for each in self.ended() if each.parent and each.parent.span_id == parent.context.span_id]
        return sorted(below, key=lambda span: span.start_time or 0)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})
