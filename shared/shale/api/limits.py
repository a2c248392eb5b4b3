"""Limits of requests (body bytes, rows, time), and their latency metrics."""

from collections.abc import Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeVar

import anyio

from shale.api.messages import Request
from shale.api.settings import HttpSection
from shale.service.http.bodies import Body, BodyBudget
from shale.service.http.lazy_timeout import run_with_lazy_timeout
from shale.service.http.problems import Problem, busy
from shale.service.latency import Latency
from shale.telemetry.metrics import Metrics

T = TypeVar("T")

_ACCEPT = "accept the write"
OPS = ("get", "put", "delete", "merge", "write", "scan")


class Limits:
    """The limits of one data port, shared by all of its routes."""

    def __init__(self, http: HttpSection, metrics: Metrics, latency: Latency) -> None:
        self.rows_max = http.max_batch_rows
        self.time_max_s = http.request_timeout
        self.answer_max_bytes = http.max_inflight_bytes
        self._latency = latency
        self._seconds = {op: metrics.histogram("slatedb_db_request_duration_seconds", op=op) for op in OPS}
        self._bodies = BodyBudget(
            http.max_inflight_bytes,
            http.max_body_bytes,
            silence_max_s=http.request_timeout,
            time_max_s=http.body_timeout,
        )

    async def body(self, call: Request) -> Body:
        """Read the body of a request; raises like ``BodyBudget.read``.

        Raises:
            Problem: the body is compressed (415); the compressed bytes would be stored as the value.
        """
        if call.has(b"content-encoding") and call.header(b"content-encoding") != "identity":
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding: compressed bodies are not supported")
        return await self._bodies.read(call.receive)

    def timed(self, op: str, call: Awaitable[T]) -> Coroutine[Any, Any, T]:
        """Await a call of the database and observe its latency."""
        return self._latency.of(self._seconds[op], call)

    @contextmanager
    def time_limit(self, what: str) -> Iterator[None]:
        """Limit a wait to ``request_timeout``.

        Raises:
            Problem: the wait timed out (503); ``what`` completes its message.
        """
        with anyio.move_on_after(self.time_max_s) as scope:
            yield
        if scope.cancelled_caught:
            raise self.timeout_problem(what)

    async def written(self, op: str, write: Coroutine[Any, Any, T], *, is_full: bool) -> T:
        """Await a write and observe its latency; limit its wait for memory to ``request_timeout``.

        Args:
            op: the name of the operation in metrics.
            write: the call of the database.
            is_full: whether it will wait.  One that finds room waits, too, if other writes take the room while it gives
                way to them.

        Raises:
            Problem: the wait timed out (503).
        """
        if not is_full:
            return await run_with_lazy_timeout(self.time_max_s, self.timed(op, write), self._no_room)
        with self.time_limit(_ACCEPT):
            return await self.timed(op, write)
        raise AssertionError("the time limit raises")

    def _no_room(self) -> Problem:
        return self.timeout_problem(_ACCEPT)

    def timeout_problem(self, what: str) -> Problem:
        """Return the 503 of a wait that timed out."""
        return busy(f"took more than {self.time_max_s:g} s to {what}")
