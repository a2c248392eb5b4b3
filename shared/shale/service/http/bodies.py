"""Request bodies, with a limit for each body and one for all bodies in memory."""

from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from shale.concurrency.loop_turns import LoopTurns
from shale.service.http.lazy_timeout import run_with_lazy_timeout
from shale.service.http.problems import Problem, busy, too_large

if TYPE_CHECKING:
    from collections.abc import Coroutine

_LARGE_PART_BYTES = 32 << 10
"""After a part of so many bytes a body waits for its turn: to take one blocks the event loop."""
LINGER_FACTOR = 2
"""A body over the limit is received and dropped up to this many times the limit.  A client that sends the whole body
before it reads would otherwise see a broken connection instead of the error."""


Incoming: TypeAlias = "Coroutine[Any, Any, Message]"
"""The awaitable that ASGI servers return for the next message of a request."""


class BodyPace(NamedTuple):
    """How slowly a body may arrive.

    Args:
        silence_max_s: the longest pause within a body.
        time_max_s: the longest time of a whole body.
        min_bytes_per_s: the lowest rate; 0: any.
        grace_s: seconds without a lowest rate at the start.
        credit_s: the most that a fast part is ahead of the rate: a client that sends most of a body at once would
            otherwise hold it for as long as a whole body may take.
    """

    silence_max_s: float
    time_max_s: float
    min_bytes_per_s: float = 0.0
    grace_s: float = 0.0
    credit_s: float = 30.0

    def due_s(self, due_s: float, elapsed_s: float, part_bytes: int) -> float:
        """Return until when the part after this one has to arrive.

        Args:
            due_s: until when this part had to; ``grace_s`` for the first one.
            elapsed_s: seconds since the start of the body.
            part_bytes: of this part.
        """
        if not self.min_bytes_per_s:
            return inf
        return min(due_s + part_bytes / self.min_bytes_per_s, elapsed_s + self.credit_s)

    def wait_max_s(self, elapsed_s: float, due_s: float) -> float:
        """Return how long the next part of a body may take; 0 or less: the body is too slow already."""
        return min(self.silence_max_s, due_s - elapsed_s)


class BodyBudget:
    """A limit on the bytes of request bodies in memory, over all requests, and of what they are decoded to."""

    def __init__(self, total_bytes: int, body_max_bytes: int, pace: BodyPace) -> None:
        self._total_bytes = total_bytes
        self._free_bytes = total_bytes
        self._body_max_bytes = body_max_bytes
        self._pace = pace
        self._turns = LoopTurns()

    @property
    def used_bytes(self) -> int:
        """The bytes that all requests have reserved."""
        return self._total_bytes - self._free_bytes

    async def read(self, receive: Receive) -> "Body":
        """Read the whole body of a request.

        Raises:
            Problem: the body is over the limit (413), the budget is used up (503), or the client is silent or too slow
                (408): a client that vanished without closing would otherwise hold its share for ever.
            ClientDisconnect: the client disconnected; the budget is released.
        """
        body = Body(self)
        try:
            first_s = self._pace.grace_s if self._pace.min_bytes_per_s else inf
            chunk, more = await self._next(receive, self._pace.wait_max_s(0.0, first_s))
            if not more and len(chunk) <= self._body_max_bytes:  # most bodies arrive in one chunk and need no timeout
                body.add(chunk)
                return body
            with anyio.move_on_after(self._pace.time_max_s) as scope:
                await self._rest(receive, body, chunk, more=more)
                return body
            assert scope.cancelled_caught
            raise _too_slow(f"the body took more than {self._pace.time_max_s:g} s")
        except BaseException:
            body.release()
            raise

    async def _rest(self, receive: Receive, body: "Body", chunk: bytes, *, more: bool) -> None:
        """Add a chunk and all after it; receive and drop what is over the limit."""
        pace, start_s = self._pace, anyio.current_time()
        received, due_s = len(chunk), pace.due_s(pace.grace_s, 0.0, len(chunk))
        body.add(chunk)
        while more and received <= LINGER_FACTOR * self._body_max_bytes:
            if len(chunk) >= _LARGE_PART_BYTES:
                await self._turns.wait()  # so that short requests wait for one such part at most
            wait_max_s = pace.wait_max_s(anyio.current_time() - start_s, due_s)
            if wait_max_s <= 0:
                raise self._slow()
            chunk, more = await self._next(receive, wait_max_s)
            due_s = pace.due_s(due_s, anyio.current_time() - start_s, len(chunk))
            received += len(chunk)
            if received <= self._body_max_bytes:
                body.add(chunk)
            else:
                body.release()
        if received > self._body_max_bytes:
            raise too_large(f"the body has more than {self._body_max_bytes} bytes")

    async def _next(self, receive: Receive, wait_max_s: float) -> tuple[bytes, bool]:
        """Return the next chunk, and whether more may follow."""
        message = await run_with_lazy_timeout(wait_max_s, cast("Incoming", receive()), self._slow)
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        return message.get("body", b""), message.get("more_body", False)

    def _slow(self) -> Problem:
        pace = self._pace
        limits = [f"no part of the body arrived for {pace.silence_max_s:g} s"]
        if pace.min_bytes_per_s:
            limits.append(f"less than {pace.min_bytes_per_s:g} bytes/s after {pace.grace_s:g} s")
        return _too_slow(", or ".join(limits))

    def require_room(self, size_bytes: int) -> None:
        """Check that a reservation may succeed at some time.

        Raises:
            Problem: it is over the whole budget (413).
        """
        if size_bytes > self._total_bytes:
            raise too_large(f"the decoded body would take {size_bytes} bytes; the limit is {self._total_bytes}")

    def take(self, size_bytes: int) -> None:
        """Reserve memory."""
        if size_bytes > self._free_bytes:
            raise busy("too many large requests at once", status=HTTPStatus.SERVICE_UNAVAILABLE)
        self._free_bytes -= size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Free memory."""
        self._free_bytes += size_bytes


class Body:
    """One body in memory; leaving the ``with`` block frees its share of the budget."""

    __slots__ = ("_budget", "_taken_bytes", "data")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._taken_bytes = 0
        self.data: bytes | bytearray = b""

    def add(self, chunk: bytes) -> None:
        """Append a chunk.  A body of one chunk is not copied.

        Raises:
            Problem: the budget is used up (503).
        """
        self._budget.take(len(chunk))
        self._taken_bytes += len(chunk)
        if not self.data:
            self.data = chunk
        elif isinstance(self.data, bytearray):
            self.data += chunk
        else:
            self.data = bytearray(self.data) + chunk

    def as_bytes(self) -> bytes:
        """Return the data, and keep it in place of the buffer it was read into: a write may wait long with it."""
        if isinstance(self.data, bytearray):
            self.data = bytes(self.data)
        return self.data

    def expand(self, size_bytes: int) -> None:
        """Reserve memory for what the body is decoded to.

        Raises:
            Problem: the whole budget is too small for the body (413), or used up (503).
        """
        self._budget.require_room(self._taken_bytes + size_bytes)
        self._budget.take(size_bytes)
        self._taken_bytes += size_bytes

    def release(self) -> None:
        """Free the memory."""
        self._budget.give_back(self._taken_bytes)
        self._taken_bytes = 0
        self.data = b""

    def __enter__(self) -> "Body":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _too_slow(detail: str) -> Problem:
    return Problem(HTTPStatus.REQUEST_TIMEOUT, detail, headers={"Connection": "close"})
