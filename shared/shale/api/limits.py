"""What every call may take: bytes of bodies, rows, time; and how long calls take."""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TypeVar

import anyio

from shale.api.call import Call
from shale.api.settings import HttpSection
from shale.env import Env
from shale.service.bodies import Body, BodyBudget
from shale.service.latency import Latency
from shale.service.problems import Problem, busy
from shale.telemetry.metrics import Metrics

T = TypeVar("T")

OPS = ("get", "put", "delete", "merge", "write", "scan")


class Limits:
    """The limits of one data port, shared by all of its calls."""

    def __init__(self, http: HttpSection, env: Env, metrics: Metrics, *, sample_rate: float) -> None:
        self.rows_max = http.max_batch_rows
        self.time_max_s = http.request_timeout
        self.answer_max_bytes = http.max_inflight_bytes
        self._latency = Latency(env, sample_rate)
        self._seconds = {op: metrics.histogram("slatedb_db_request_duration_seconds", op=op) for op in OPS}
        self._bodies = BodyBudget(
            http.max_inflight_bytes,
            http.max_body_bytes,
            silence_max_s=http.request_timeout,
            time_max_s=http.max_body_time,
        )

    async def body(self, call: Call) -> Body:
        """The whole body of a request; raises as ``BodyBudget.read`` does.

        Raises:
            Problem: it is compressed: what was meant would be stored as it came (415).
        """
        if call.has(b"content-encoding") and call.header(b"content-encoding") != "identity":
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding: bodies are taken as they are only")
        return await self._bodies.read(call.receive)

    def timed(self, op: str, call: Awaitable[T]) -> Awaitable[T]:
        """Await a call of the database and observe its time."""
        return self._latency.of(self._seconds[op], call)

    @contextmanager
    def in_time(self, what: str) -> Iterator[None]:
        """End a wait that takes too long.

        Raises:
            Problem: it took ``request_timeout`` (503).
        """
        with anyio.move_on_after(self.time_max_s) as scope:
            yield
        if scope.cancelled_caught:
            raise self.too_late(what)

    def too_late(self, what: str) -> Problem:
        """The answer to a wait that took too long."""
        return busy(f"took more than {self.time_max_s:g} s to {what}")
