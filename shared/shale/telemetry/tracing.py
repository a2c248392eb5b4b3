"""Spans of OpenTelemetry, for processes that want them (docs/how-to/tracing.md).

Nothing of OpenTelemetry is imported here.  ``enable`` takes a tracer; until then a span is one comparison.  Whether a
trace is kept is decided before its first span exists: a span that a sampler of OpenTelemetry drops has its price, too.
Requests that fail are kept in any case: their one span is made when they have ended.

Many writes share one file of the WAL.  The span of its flush has links to the writes, and is not their parent.
"""

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from math import inf, log
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shale.core.url_secrets import without_url_secrets
from shale.env import Env

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, Tracer

LINKS_MAX = 32
"""A flush has links to at most so many writes, the newest ones."""
_SAMPLED_FLAG = 0x01
_TRACEPARENT_CHARS = 55
"""``00-``, 32 digits of the trace, 16 of the span, 2 of the flags, and two dashes between them."""

Attributes = dict[str, str | int]


class RecordedSpan(AbstractContextManager["RecordedSpan"]):
    """A span of OpenTelemetry that has begun, is the current one inside the block, and ends with it.

    It does what ``start_as_current_span`` does, in half the time.
    """

    __slots__ = ("_otel", "_outer", "_token")

    def __init__(self, otel: "Span") -> None:
        self._otel = otel

    def __enter__(self) -> Self:
        from opentelemetry.context import attach
        from opentelemetry.trace import set_span_in_context

        self._token = _is_recording.set(True)
        self._outer = attach(set_span_in_context(self._otel))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        from opentelemetry.context import detach

        _is_recording.reset(self._token)
        detach(self._outer)
        if isinstance(error, Exception):
            self._record_error(error)
        elif error is not None:
            self.set("error.type", type(error).__name__)
        self._otel.end()

    def _record_error(self, error: Exception) -> None:
        """Add an error and its message; OpenTelemetry would also add the secrets in its URLs."""
        from opentelemetry.trace import Status, StatusCode

        message = without_url_secrets(str(error))
        self.set("error.type", getattr(error, "kind", type(error).__name__))
        self._otel.add_event("exception", {"exception.type": type(error).__name__, "exception.message": message})
        self._otel.set_status(Status(StatusCode.ERROR, message))

    @property
    def ids(self) -> tuple[str, str]:
        """The ids of the trace and of the span, in hexadecimal digits."""
        context = self.context
        return f"{context.trace_id:032x}", f"{context.span_id:016x}"

    @property
    def context(self) -> "SpanContext":
        """The ids of the span, for links."""
        context: SpanContext = self._otel.get_span_context()
        return context

    def set(self, name: str, value: str | int) -> None:
        """Set an attribute."""
        self._otel.set_attribute(name, value)

    def fail(self, error_type: str) -> None:
        """Mark the work as failed, through no fault of the client."""
        from opentelemetry.trace import Status, StatusCode

        self.set("error.type", error_type)
        self._otel.set_status(Status(StatusCode.ERROR))


_is_recording: ContextVar[bool] = ContextVar("shale_is_recording", default=False)
_NO_SPAN = nullcontext()

Scope = AbstractContextManager[object]
"""A span, or nothing."""


class Tracing:
    """Makes the spans of one process.

    Args:
        tracer: of OpenTelemetry; it must keep every span that it is asked for.
        env: has the clock, and chooses the traces that are kept.
        ratio: the share of traces that are kept, between 0 and 1, among those that no caller has decided.
        attributes: of every span; ``db.namespace`` is among them.
    """

    def __init__(self, tracer: "Tracer", env: Env, *, ratio: float, attributes: Attributes) -> None:
        self._tracer = tracer
        self._env = env
        self._ratio = ratio
        self._attributes = attributes
        self._writes: deque[SpanContext] = deque(maxlen=LINKS_MAX)
        self._left_out = _gap(ratio, env.rng.random())

    @property
    def namespace(self) -> str:
        """The name of the database."""
        return str(self._attributes["db.namespace"])

    def keeps(self, traceparent: str | None) -> bool:
        """Decide whether a request is traced: as its caller has decided, else by chance."""
        flags = None if traceparent is None else _flags_of(traceparent)
        return self.chooses() if flags is None else bool(flags & _SAMPLED_FLAG)

    def request(self, name: str, traceparent: str | None, attributes: Attributes) -> RecordedSpan:
        """Begin the span of a request that is kept."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        parent = None if traceparent is None else _parent_of(traceparent)
        return self._record(name, attributes, context=Context() if parent is None else parent, kind=SpanKind.SERVER)

    def failed_request(self, name: str, seconds: float, attributes: Attributes) -> None:
        """Record a request that failed and was not kept so far.

        Args:
            name: of the span.
            seconds: that the request took until now.
            attributes: of the span.
        """
        from opentelemetry.trace import SpanKind, Status, StatusCode

        end_ns = self._env.clock.now_ms() * 1_000_000
        start_ns = end_ns - int(seconds * 1e9)
        attributes = self._attributes | attributes
        span = self._tracer.start_span(name, kind=SpanKind.SERVER, attributes=attributes, start_time=start_ns)
        span.set_status(Status(StatusCode.ERROR))
        span.end(end_ns)

    def link_next_flush(self, span: RecordedSpan) -> None:
        """Let the next flush of the WAL have a link to a write."""
        self._writes.append(span.context)

    def flush(self, name: str, attributes: Attributes) -> Scope:
        """Begin the span of a flush of the WAL; one of a write that is kept is kept, too."""
        if not self._writes:
            return self._root(name, attributes) if self.chooses() else _NO_SPAN
        from opentelemetry.trace import Link

        links = [Link(self._writes.popleft()) for _ in range(len(self._writes))]
        return self._root(name, attributes, links=links)

    def job(self, name: str, attributes: Attributes) -> Scope:
        """Begin the span of a rare piece of work, which is always kept."""
        return self._root(name, attributes)

    def step(self, name: str, attributes: Attributes) -> Scope:
        """Begin the span of a step inside another span."""
        return self._record(name, attributes)

    def sample(self, ratio: float) -> None:
        """Keep another share of traces from now on."""
        if ratio != self._ratio:
            self._ratio = ratio
            self._left_out = _gap(ratio, self._env.rng.random())

    def chooses(self) -> bool:
        """Choose by chance, for work that no caller has decided about.

        One random number tells how many are left out until the next one: drawing it costs as much as ten comparisons.
        """
        if self._left_out > 0:
            self._left_out -= 1
            return False
        self._left_out = _gap(self._ratio, self._env.rng.random())
        return True

    def _root(self, name: str, attributes: Attributes, **options: Any) -> Scope:
        from opentelemetry.context import Context

        return self._record(name, attributes, context=Context(), **options)

    def _record(self, name: str, attributes: Attributes, **options: Any) -> RecordedSpan:
        return RecordedSpan(self._tracer.start_span(name, attributes=self._attributes | attributes, **options))


_tracing: Tracing | None = None


def enable(tracing: Tracing | None) -> None:
    """Make spans from now on; None: make none."""
    global _tracing  # noqa: PLW0603 - like the loggers of the process: handing it to every part would be in each signature
    _tracing = tracing


def active() -> Tracing | None:
    """Return what makes spans; None while tracing is off."""
    return _tracing


def job(name: str, **attributes: str | int) -> Scope:
    """Begin the span of a rare piece of work: a compaction, a pass of the collector."""
    return _NO_SPAN if _tracing is None else _tracing.job(name, attributes)


def flush(name: str, **attributes: str | int) -> Scope:
    """Begin the span of a flush of the WAL, with links to its writes."""
    return _NO_SPAN if _tracing is None else _tracing.flush(name, attributes)


def step(name: str, **attributes: str | int) -> Scope:
    """Begin the span of a step, if it is inside a span."""
    return _NO_SPAN if _tracing is None or not _is_recording.get() else _tracing.step(name, attributes)


def _gap(ratio: float, chance: float) -> float:
    """Return how many are left out before the next one is chosen, if each is chosen with the probability ``ratio``."""
    if ratio >= 1.0:
        return 0
    return inf if ratio <= 0.0 else int(log(1.0 - chance) / log(1.0 - ratio))


def _flags_of(traceparent: str) -> int | None:
    """Return the flags of a W3C trace context; None if it is none."""
    if len(traceparent) < _TRACEPARENT_CHARS or traceparent.startswith("ff"):
        return None
    try:
        return int(traceparent[53:55], 16)
    except ValueError:
        return None


def _parent_of(traceparent: str) -> "Context | None":
    """Parse a W3C trace context; return None if it is none."""
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    try:
        trace_id, span_id = int(traceparent[3:35], 16), int(traceparent[36:52], 16)
    except ValueError:
        return None
    parent = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(_SAMPLED_FLAG))
    return set_span_in_context(NonRecordingSpan(parent)) if parent.is_valid else None
