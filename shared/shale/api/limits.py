"""Limits of requests (body bytes, rows, time), and their latency metrics."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar, cast

import anyio
from starlette.requests import ClientDisconnect

from shale.api.messages import Request, Response
from shale.api.sent_values import SentValues
from shale.api.settings import HttpSection
from shale.concurrency.byte_budget import ByteShare
from shale.core.memory_account import MemoryPart
from shale.env import Env
from shale.errors import ShaleError
from shale.kernels.outline import outline
from shale.service.http.bodies import Body, BodyBudget, BodyPace
from shale.service.http.connection import is_closed
from shale.service.http.documents import LARGE_BYTES, SMALL_BYTES, Fields, decode, expansion_bytes, require_outline
from shale.service.http.lazy_timeout import run_with_lazy_timeout
from shale.service.http.problems import Problem, busy
from shale.service.latency import Latency
from shale.service.process import PortServices
from shale.sst.budget import LARGE_VALUE_BYTES
from shale.telemetry.metrics import Metrics
from shale.types import Row

T = TypeVar("T")

_ACCEPT = "accept the write"
_RESPOND = "get memory for the response"
MIN_RATE_GRACE_S = 10.0
"""Seconds after the start of a body from which ``min_body_rate`` counts."""
ROW_ELEMENTS = 9
"""The most that an operation has: an object, and its fields ``op``, ``key``, ``value`` and ``ttl_ms``."""
FEW_ELEMENTS = 64
"""For what the body has beside its rows."""
OPS = ("get", "put", "delete", "merge", "write", "scan")


_COPIES_OF_RESPONSE = 4
"""Of the values of a large response while it is made: blocks and values; then the rest of them and the body."""


class Limits:
    """The limits of one data port, shared by all of its routes."""

    def __init__(self, http: HttpSection, metrics: Metrics, env: Env, services: PortServices) -> None:
        self.rows_max = http.max_batch_rows
        self.time_max_s = http.request_timeout
        self.send_timeout_s = http.send_timeout
        responses = services.memory.responses
        self.answer_max_bytes = min(http.max_inflight_bytes, responses.capacity_bytes)
        room = responses.capacity_bytes // (_COPIES_OF_RESPONSE * self.answer_max_bytes)
        self._large_responses = anyio.Semaphore(max(1, room))
        self._latency = services.latency or Latency(env, 1.0)
        self._cpu = env.cpu
        self._seconds = {op: metrics.histogram("slatedb_db_request_duration_seconds", op=op) for op in OPS}
        self._bodies = BodyBudget(
            http.max_inflight_bytes,
            http.max_body_bytes,
            BodyPace(http.request_timeout, http.body_timeout, http.min_body_rate, MIN_RATE_GRACE_S),
        )
        self.memory = services.memory
        self._sent = SentValues(services.memory.large_values)
        services.memory.account.add_meter(MemoryPart.REQUESTS, lambda: self._bodies.used_bytes)

    async def body(self, call: Request) -> Body:
        """Read the body of a request; raises like ``BodyBudget.read``.

        Raises:
            Problem: the body is compressed (415); the compressed bytes would be stored as the value.
        """
        if call.has(b"content-encoding") and call.header(b"content-encoding") != "identity":
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding: compressed bodies are not supported")
        return await self._bodies.read(call.receive)

    async def decoded(
        self,
        body: Body,
        take: Callable[[Fields], T],
        *,
        packed: bool,
        elements_per_row: int = ROW_ELEMENTS,
        is_optional: bool = False,
    ) -> T:
        """Decode a body and return what ``take`` makes of its fields; a large body is decoded in a thread.

        Args:
            body: a body, whose share of the budget grows by what it is decoded to.
            take: makes something of the fields.
            packed: the body is msgpack, otherwise JSON.
            elements_per_row: how many elements the body may have for each of ``max_batch_rows``.
            is_optional: a body without bytes has no fields; otherwise it is malformed.

        Raises:
            Problem: the body is malformed (400), has too many elements (413), or the budget is used up (503).
        """
        data = body.data
        if len(data) <= SMALL_BYTES:
            return take({} if is_optional and not data else decode(data, packed=packed))
        elements_max = elements_per_row * self.rows_max + FEW_ELEMENTS
        find = partial(outline, data, packed=packed, elements_max=elements_max)
        is_large = len(data) > LARGE_BYTES
        outlined = await self._cpu.run(find) if is_large else find()
        require_outline(outlined, data, packed=packed, elements_max=elements_max)
        # The texts of JSON are decoded once more, from base64.
        body.expand(expansion_bytes(outlined) + len(data) * (1 if packed else 2))

        def decode_and_take() -> T:
            return take(decode(data, packed=packed, outlined=outlined))

        return await self._in_thread(decode_and_take) if is_large else decode_and_take()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Call ``work`` in a thread.

        An error passes without its traceback: the thread keeps it until its next call, and with it the body.
        """
        result, error = await self._cpu.run(partial(_result_or_error, work))
        if error is not None:
            raise error
        return cast("T", result)

    def value_to_send(self, key: bytes, row: Row) -> bytes | None:
        """Return the value of a row; ``None``: there is no memory for it, see ``SentValues.try_hold``."""
        return row.value if len(row.value) <= LARGE_VALUE_BYTES else self._sent.try_hold((key, row.seq), row.value)

    async def room_for_value(self, size_bytes: int) -> None:
        """Wait for the memory of a value, which the present task then has.

        Raises:
            Problem: there was none in time (503).
        """
        with self.time_limit(_RESPOND):
            await self.memory.large_values.take(size_bytes)

    async def hold_body(self, response: Response) -> Response:
        """Return a response with a complete body; wait for memory if it is large, which is kept until it is sent.

        Raises:
            Problem: there was none in time (503).
        """
        if len(response.body) > LARGE_VALUE_BYTES:
            await self.room_for_value(len(response.body))
        return response

    @asynccontextmanager
    async def large_response(self) -> AsyncIterator[None]:
        """Wait for a turn to read many values and encode them: memory has room for few such responses.

        Raises:
            Problem: it did not come in time (503).
        """
        self.memory.large_values.release()  # of what was read before: what waits keeps none of it
        with self.time_limit("get memory for the response"):
            await self._large_responses.acquire()
        try:
            yield
        finally:
            self._large_responses.release()

    async def scan_share(self, call: Request) -> ByteShare:
        """Take the memory of one scan; the caller releases it.

        Raises:
            Problem: there was none in time (503).
            ClientDisconnect: the client has not waited for it.
        """
        share = self.memory.scans.share()
        self.memory.large_values.release()  # of what was read before: what waits keeps none of it
        with self.time_limit("get memory for the scan"):
            await share.take(self.memory.scan_bytes)
        if is_closed(call.scope):
            share.reduce_to(0)
            raise ClientDisconnect
        return share

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


def _result_or_error(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return work(), None
    except (Problem, ShaleError) as error:
        error.__cause__ = error.__context__ = None
        return None, error.with_traceback(None)
