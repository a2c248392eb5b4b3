"""uvicorn's connection, with bounds on what comes before a request's body, and refusals as problem documents."""

import asyncio
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any, cast

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from shale.service.problems import MEDIA_TYPE, Problem, busy, document, retry_after_s

HEAD_BYTES_MAX = 128 * 1024
"""Request line and headers of one request; the parser below keeps as much as comes."""
HEAD_S = 30.0
"""How long they may take, and how long a new connection may be silent."""
UNREAD_S = 60.0
"""How long an answer may lie there without its client taking any of it."""

_ABORT = "shale.abort"


def abort_connection(scope: MutableMapping[str, Any]) -> bool:
    """Cut the connection of a request at once, whatever its client has not taken yet; ``False``: it is not ours."""
    extension = scope.get("extensions", {}).get(_ABORT)
    if extension is None:
        return False
    extension["call"]()
    return True


class BoundedProtocol(HttpToolsProtocol):
    """A connection that ends when its client does not get on with a request, or sends one of endless headers."""

    connections_max: int | None = None
    """Further ones are refused."""
    _unread_bytes = 0
    _unread_timer: asyncio.TimerHandle | None = None
    _is_in_head = False
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client is there, and must say something."""
        super().connection_made(transport)
        self._extensions = {_ABORT: {"call": transport.abort}}
        if self.connections_max is not None and len(self.connections) > self.connections_max:
            self._refuse(busy(f"more than {self.connections_max} connections"))
            return
        self.timeout_keep_alive_task = self.loop.call_later(HEAD_S, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._head_is_over()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request has begun."""
        self._is_in_head = True
        super().on_message_begin()
        self.scope["extensions"] = self._extensions  # type: ignore[typeddict-item]  # ASGI leaves names to servers

    def on_headers_complete(self) -> None:
        """Its body may follow."""
        self._head_is_over()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """An answer was written, and perhaps not taken yet."""
        super().on_response_complete()
        if self._unread_timer is None and self.transport.get_write_buffer_size():
            self._expect_reading()

    def _expect_reading(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._unread_timer = self.loop.call_later(UNREAD_S, self._cut_if_unread)

    def _cut_if_unread(self) -> None:
        """End a connection whose client takes nothing: closing it would wait for the client."""
        self._unread_timer = None
        left = self.transport.get_write_buffer_size()
        if left and left >= self._unread_bytes:
            self.transport.abort()
        elif left:
            self._expect_reading()

    def data_received(self, data: bytes) -> None:
        """Some bytes came."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                self._refuse(Problem(status, f"the headers have more than {HEAD_BYTES_MAX} bytes"))
            elif self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._refuse(Problem(HTTPStatus.BAD_REQUEST, msg))

    def _too_slow(self) -> None:
        self._refuse(Problem(HTTPStatus.REQUEST_TIMEOUT, f"the headers took more than {HEAD_S:g} s"))

    def _head_is_over(self) -> None:
        self._is_in_head = False
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, problem: Problem) -> None:
        self._head_is_over()
        body = orjson.dumps(document(problem))
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:  # else another answer is on its way
            pause_s = retry_after_s(problem.status)
            retry = "" if pause_s is None else f"retry-after: {pause_s}\r\n"
            head = (
                f"HTTP/1.1 {problem.status.value} {problem.status.phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
                f"content-length: {len(body)}\r\n{retry}connection: close\r\n\r\n"
            )
            self.transport.write(head.encode("ascii") + body)
        self.transport.close()
