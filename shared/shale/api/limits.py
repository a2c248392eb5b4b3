"""What every call may take: bytes of bodies, rows, time; and how long calls take."""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio
from starlette.requests import Request

from shale.api.settings import HttpSection
from shale.env import Env
from shale.service.bodies import Body, BodyBudget
from shale.service.latency import Latency
from shale.service.problems import busy
from shale.telemetry.metrics import Metrics

T = TypeVar("T")

OPS = ("get", "put", "delete", "write", "scan")


class Limits:
    """The limits of one data port, shared by all of its calls."""

    def __init__(self, http: HttpSection, env: Env, metrics: Metrics, *, sample_rate: float) -> None:
        self.rows_max = http.max_batch_rows
        self._time_max_s = http.request_timeout
        self._latency = Latency(env, sample_rate)
        self._seconds = {op: metrics.histogram("slatedb_db_request_duration_seconds", op=op) for op in OPS}
        self._bodies = BodyBudget(http.max_inflight_bytes, http.max_body_bytes, silence_max_s=http.request_timeout)

    async def body(self, request: Request) -> Body:
        """The whole body of a request; raises as ``BodyBudget.read`` does."""
        return await self._bodies.read(request)

    async def timed(self, op: str, call: Awaitable[T]) -> T:
        """Await a call of the database and observe its time."""
        return await self._latency.of(self._seconds[op], call)

    @contextmanager
    def in_time(self, what: str) -> Iterator[None]:
        """End a wait that takes too long.

        Raises:
            Problem: it took ``request_timeout`` (503).
        """
        try:
            with anyio.fail_after(self._time_max_s):
                yield
        except TimeoutError as error:
            raise busy(f"took more than {self._time_max_s:g} s to {what}") from error
