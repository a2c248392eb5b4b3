"""Request bodies, with a limit for each body and one for all bodies in memory."""

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio
import msgpack
import orjson
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from shale.service.http.lazy_timeout import run_with_lazy_timeout
from shale.service.http.problems import Problem, bad_request, busy, too_large

if TYPE_CHECKING:
    from collections.abc import Coroutine

JSON = "application/json"
MSGPACK = "application/msgpack"
LINGER_FACTOR = 2
"""A body over the limit is received and dropped up to this many times the limit.  A client that sends the whole body
before it reads would otherwise see a broken connection instead of the error."""

_MSGPACK_NAMES = frozenset({MSGPACK, "application/x-msgpack", "application/vnd.msgpack"})


Incoming: TypeAlias = "Coroutine[Any, Any, Message]"
"""The awaitable that ASGI servers return for the next message of a request."""


class BodyBudget:
    """A limit on the bytes of request bodies in memory, over all requests."""

    def __init__(self, total_bytes: int, body_max_bytes: int, *, silence_max_s: float, time_max_s: float) -> None:
        self._free_bytes = total_bytes
        self._body_max_bytes = body_max_bytes
        self._silence_max_s = silence_max_s
        self._time_max_s = time_max_s

    async def read(self, receive: Receive) -> "Body":
        """Read the whole body of a request.

        Raises:
            Problem: the body is over the limit (413), the budget is used up (503), or the client is silent or too slow
                (408): a client that vanished without closing would otherwise hold its share for ever.
            ClientDisconnect: the client disconnected; the budget is released.
        """
        body = Body(self)
        try:
            chunk, more = await self._next(receive)
            received = self._take(body, chunk, 0)
            if more:  # most bodies arrive in one chunk and need no timeout
                with anyio.move_on_after(self._time_max_s) as scope:
                    while more and received <= LINGER_FACTOR * self._body_max_bytes:
                        chunk, more = await self._next(receive)
                        received = self._take(body, chunk, received)
                if scope.cancelled_caught:
                    raise _too_slow(f"the body took more than {self._time_max_s:g} s")
        except BaseException:
            body.release()
            raise
        if received > self._body_max_bytes:
            body.release()
            raise too_large(f"the body has more than {self._body_max_bytes} bytes")
        return body

    def _take(self, body: "Body", chunk: bytes, received: int) -> int:
        """Store a chunk unless the body is over its limit; return the bytes received so far."""
        received += len(chunk)
        if received <= self._body_max_bytes:
            body.add(chunk)
        return received

    async def _next(self, receive: Receive) -> tuple[bytes, bool]:
        """Return the next chunk, and whether more may follow."""
        message = await run_with_lazy_timeout(self._silence_max_s, cast("Incoming", receive()), self._silent)
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        return message.get("body", b""), message.get("more_body", False)

    def _silent(self) -> Problem:
        return _too_slow(f"no part of the body arrived for {self._silence_max_s:g} s")

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


def is_msgpack(content_type: str | None) -> bool:
    """Return whether a body of this content type is msgpack; without a content type it is JSON.

    Raises:
        Problem: the type is neither JSON nor msgpack (415).
    """
    content_type = (content_type or JSON).partition(";")[0].strip().lower()
    if content_type in _MSGPACK_NAMES:
        return True
    if content_type == JSON or content_type.endswith("+json"):
        return False
    raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"{content_type}: send {JSON} or {MSGPACK}")


def decode(data: bytes | bytearray, *, packed: bool) -> dict[str, object]:
    """Decode a body that is an object.

    Raises:
        Problem: the body is malformed, or not an object (400).
    """
    try:
        value = msgpack.unpackb(data, use_list=False, strict_map_key=True) if packed else orjson.loads(data)
    except (ValueError, msgpack.UnpackException) as error:
        raise bad_request(f"the body is not {'msgpack' if packed else 'JSON'}: {error}") from error
    if not isinstance(value, dict):
        raise bad_request("the body is not an object of names and values")
    return value
