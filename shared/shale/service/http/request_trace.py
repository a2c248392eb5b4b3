"""The span of one request of the HTTP API."""

from types import TracebackType
from typing import Final, Protocol, Self

import structlog

from shale.telemetry import tracing
from shale.telemetry.tracing import Attributes, RecordedSpan, Tracing

_SERVER_ERROR = 500
_NAMES: Final = {
    ("kv", "GET"): "slatedb.get",
    ("kv", "HEAD"): "slatedb.get",
    ("kv", "PUT"): "slatedb.put",
    ("kv", "PATCH"): "slatedb.merge",
    ("kv", "DELETE"): "slatedb.delete",
    ("batch", "POST"): "slatedb.write",
    ("get-many", "POST"): "slatedb.get",
    ("scan", "POST"): "slatedb.scan",
    ("txn", "POST"): "slatedb.txn",
}
_WRITES: Final = frozenset({"slatedb.put", "slatedb.merge", "slatedb.delete", "slatedb.write", "slatedb.txn"})


class TracedRequest(Protocol):
    """What a request tells about itself."""

    method: str
    """In capital letters."""

    def header(self, name: bytes) -> str | None:
        """Return the value of a header, named in lower case."""


class RequestTrace:
    """Makes the span of a request that is kept, and tells the log its ids."""

    __slots__ = ("_name", "_span", "_traces", "trace_id")

    def __init__(self, traces: Tracing, route: str, call: TracedRequest) -> None:
        self._traces = traces
        self._name = _name(route, call)
        attributes = _attributes(self._name, route, call)
        self._span: RecordedSpan = traces.request(self._name, call.header(b"traceparent"), attributes)

    def __enter__(self) -> Self:
        self._span.__enter__()
        if self._name in _WRITES:
            self._traces.link_next_flush(self._span)
        self.trace_id, span_id = self._span.ids
        structlog.contextvars.bind_contextvars(trace_id=self.trace_id, span_id=span_id)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._span.__exit__(kind, error, traceback)

    def answered(self, status: int) -> None:
        """Note the status of the response."""
        self._span.set("http.response.status_code", status)
        if status >= _SERVER_ERROR:
            self._span.fail(str(status))


def begin(route: str, call: TracedRequest) -> RequestTrace | None:
    """Begin the span of a request; None if it is not kept."""
    traces = tracing.active()
    if traces is None or not traces.keeps(call.header(b"traceparent")):
        return None
    return RequestTrace(traces, route, call)


def record_failure(route: str, call: TracedRequest, status: int, seconds: float) -> None:
    """Record a request that was not kept and ended with a server error.

    Args:
        route: of the request.
        call: the request.
        status: of the response.
        seconds: that it took.
    """
    traces = tracing.active()
    if traces is not None and status >= _SERVER_ERROR:
        name = _name(route, call)
        said: Attributes = {"http.response.status_code": status, "error.type": str(status)}
        traces.failed_request(name, seconds, _attributes(name, route, call) | said)


def _name(route: str, call: TracedRequest) -> str:
    return _NAMES.get((route, call.method), f"slatedb.{route}")


def _attributes(name: str, route: str, call: TracedRequest) -> Attributes:
    operation = name.removeprefix("slatedb.")
    return {"db.operation.name": operation, "http.request.method": call.method, "http.route": route}
