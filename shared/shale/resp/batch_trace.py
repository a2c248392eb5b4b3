"""The span of commands of the Redis port that arrive together, and are answered together.

Names and attributes are those of OpenTelemetry's conventions for Redis: the operation is the command, or ``PIPELINE``.
"""

from asyncio import CancelledError
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import structlog

from shale.resp import latency
from shale.resp.session import RespSession
from shale.telemetry import tracing
from shale.telemetry.tracing import Attributes, RecordedSpan, Tracing

TIMEOUT = "timeout"
"""The error type of a command that exceeded its time limit."""


class BatchTrace:
    """Makes the span of commands that are kept, and tells the log its ids."""

    __slots__ = ("_context", "_links", "_span", "_traces", "trace_id")

    def __init__(self, traces: Tracing, session: RespSession, commands: Sequence[list[bytes]]) -> None:
        self._traces = traces
        self._links = any(session.category_of(args) == latency.WRITE for args in commands)
        name, attributes = _described(traces, session, commands)
        self._span: RecordedSpan = traces.request(name, None, attributes)

    def __enter__(self) -> Self:
        self._span.__enter__()
        if self._links:
            self._traces.link_next_flush(self._span)
        self.trace_id, span_id = self._span.ids
        self._context = structlog.contextvars.bind_contextvars(trace_id=self.trace_id, span_id=span_id)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        structlog.contextvars.reset_contextvars(**self._context)
        if isinstance(error, CancelledError):  # by a time limit; OpenTelemetry does not take it for an error
            self.fail(TIMEOUT)
            kind = error = traceback = None
        self._span.__exit__(kind, error, traceback)

    def fail(self, error_type: str) -> None:
        """Note that a command failed through no fault of the client."""
        self._span.fail(error_type)


def begin(session: RespSession, commands: Sequence[list[bytes]], done: int) -> BatchTrace | None:
    """Begin the span of the commands from the place ``done`` on; None if it is not kept, or none is left."""
    traces = tracing.active()
    if traces is None or done == len(commands) or not traces.chooses():
        return None
    return BatchTrace(traces, session, commands[done:])


def record_failure(session: RespSession, commands: Sequence[list[bytes]], error_type: str, seconds: float) -> None:
    """Record commands that were not kept, and of which one failed through no fault of the client."""
    traces = tracing.active()
    if traces is not None:
        name, attributes = _described(traces, session, commands)
        traces.failed_request(name, seconds, attributes | {"error.type": error_type})


def _described(traces: Tracing, session: RespSession, commands: Sequence[list[bytes]]) -> tuple[str, Attributes]:
    """Return the name and the attributes of the span of some commands."""
    names = {session.name_of(args).upper() for args in commands}
    attributes: Attributes = {"network.protocol.name": "resp"}
    operation = names.pop() if len(names) == 1 else ""
    if len(commands) > 1:
        operation = f"PIPELINE {operation}".rstrip()
        attributes["db.operation.batch.size"] = len(commands)
    attributes["db.operation.name"] = operation
    return f"{operation} {traces.namespace}", attributes
