"""uvicorn's HTTP connection with limits on headers, idle time and unread responses; errors are problem documents."""

import asyncio
from collections.abc import Mapping, MutableMapping
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar

from shale.core.address_limits import ConnectionCounts
from shale.service.http.ordered_connection import OrderedProtocol
from shale.service.http.problems import Problem, busy
from shale.service.memory.counted_transport import CountedTransport
from shale.service.memory.unread_responses import UnreadResponses

HEAD_BYTES_MAX = 128 * 1024
"""Limit for the request line and headers of one request; the HTTP parser itself has none."""
HEAD_S = 30.0
"""Seconds that the headers may take, and that a new connection may be silent."""
FIRST_REQUEST_S = 0.5
"""Seconds that a new connection has for its first request if the server stops meanwhile."""

CERTIFICATE = "shale.certificate"
"""Whether the client has shown a certificate of a known authority."""
_ABORT = "shale.abort"
_ENDLESS = "shale.endless"
_CLOSED = "shale.closed"


def abort_connection(scope: MutableMapping[str, Any]) -> bool:
    """Abort the connection of a request at once and drop unread data; ``False`` if another server made the scope."""
    extension = scope.get("extensions", {}).get(_ABORT)
    if extension is None:
        return False
    extension["call"]()
    return True


def close_at_shutdown(scope: MutableMapping[str, Any]) -> None:
    """Close the connection of this request as soon as the server stops: its response has no end to wait for."""
    extension = scope.get("extensions", {}).get(_ENDLESS)
    if extension is not None:
        extension["call"]()


def is_closed(scope: Mapping[str, Any]) -> bool:
    """Return whether the connection of a request is known to be closed: what it asks for is for no one."""
    extension = scope.get("extensions", {}).get(_CLOSED)
    return extension is not None and bool(extension["call"]())


class BoundedProtocol(OrderedProtocol):
    """A connection that closes when its client stalls within a request or sends endless headers."""

    connections_max: int | None = None
    """Further connections get a 503 and are closed."""
    per_address: ConnectionCounts | None = None
    """Further connections of an address get a 429 and are closed."""
    refused: ClassVar[set["BoundedProtocol"]] = set()
    """Those of this port that were told so: with TLS they stay until their clients agree to the end."""
    _counted_address: str | None = None
    send_timeout_s = 30.0
    """A client that reads nothing of its responses for so many seconds is dropped."""
    unread: UnreadResponses | None = None
    """Counts what clients have not read, and drops some if it is too much."""
    transport: CountedTransport  # pyright: ignore[reportIncompatibleVariableOverride]
    _is_endless = False
    _is_last = False
    """The first request is the only one, because the server stops."""
    _made_s = 0.0
    _unread_bytes = 0
    _unread_timer: asyncio.TimerHandle | None = None
    _is_in_head = False
    _heads = 0
    """Requests whose headers have begun."""
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the timer for the first request of a new connection."""
        # In a turn of its own: it may be called while the transport writes.
        drop = partial(self.loop.call_soon, transport.abort)
        counted = CountedTransport(transport, None if self.unread is None else self.unread.share(drop))
        super().connection_made(counted)
        self._made_s = self.loop.time()
        tls = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        self._extensions = {
            _ABORT: {"call": counted.abort},
            _ENDLESS: {"call": self._set_endless},
            _CLOSED: {"call": counted.is_closing},
            CERTIFICATE: certificate is not None,
        }
        per_address, is_within = self.per_address, True
        if per_address is not None and self.client is not None:
            self._counted_address = self.client[0]
            is_within = per_address.opened(self._counted_address)
        problem = None
        if self.connections_max is not None and len(self.connections) - len(self.refused) > self.connections_max:
            problem = busy(f"more than {self.connections_max} connections")
        elif per_address is not None and not is_within:
            detail = f"more than {per_address.limit} connections of this address"
            problem = busy(detail, status=HTTPStatus.TOO_MANY_REQUESTS)
        if problem is not None:
            self.refused.add(self)
            self._refuse(problem, linger=False)
            return
        self.timeout_keep_alive_task = self.loop.call_later(HEAD_S, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers of a closed connection, and drop what refers to it."""
        self._head_is_over()
        self.refused.discard(self)
        self.transport.lost()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        if self.per_address is not None and self._counted_address is not None:
            self.per_address.closed(self._counted_address)
            self._counted_address = None
        super().connection_lost(exc)
        self._extensions = {}  # requests that still run have their own reference

    def eof_received(self) -> None:
        """Send what is written already, and close: the client sends nothing more."""
        self.transport.ended()
        super().eof_received()

    def _set_endless(self) -> None:
        self._is_endless = True

    def shutdown(self) -> None:
        """Stop after the running request; one whose response has no end stops now, and is told of a disconnect.

        The first request of a new connection may be on its way: the client would see a reset if it was closed.
        """
        left_s = self._made_s + FIRST_REQUEST_S - self.loop.time()
        if self._is_endless:
            self.transport.abort()
        elif self._heads == 0 and left_s > 0 and not self._is_refused:
            self._is_last = True
            self.loop.call_later(left_s, self._close_if_silent)
        else:
            super().shutdown()

    def _close_if_silent(self) -> None:
        if self._heads == 0:
            self.transport.close()

    def on_message_begin(self) -> None:
        """Note the start of the headers of a request."""
        self._is_in_head = True
        self._heads += 1
        super().on_message_begin()
        self.scope["extensions"] = self._extensions  # type: ignore[typeddict-item]  # ASGI leaves names to servers

    def on_headers_complete(self) -> None:
        """Note the end of the headers."""
        self._head_is_over()
        super().on_headers_complete()
        if self._is_last and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Start the timer for unread data after a response."""
        super().on_response_complete()
        self._watch_head()
        if self._unread_timer is None and self.transport.get_write_buffer_size():
            self._expect_reading()

    def pause_writing(self) -> None:
        """Start the timer for unread data within a response."""
        super().pause_writing()
        if self._unread_timer is None:
            self._expect_reading()
        self.transport.paused()

    def resume_writing(self) -> None:
        """Stop the timer: the client has read; what comes next may have the same size."""
        if not self.transport.resumed():
            return
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        super().resume_writing()

    def _expect_reading(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._unread_timer = self.loop.call_later(self.send_timeout_s, self._cut_if_unread)

    def _cut_if_unread(self) -> None:
        """Abort a connection whose client reads nothing; an orderly close would wait for the client."""
        self._unread_timer = None
        left = self.transport.get_write_buffer_size()
        if left and left >= self._unread_bytes:
            self.transport.abort()
        elif left:
            self._expect_reading()

    def data_received(self, data: bytes) -> None:
        """Count the bytes of headers and limit them."""
        # All bytes are of one head if it goes on, or if it is the first after a whole request.
        of_head = self._heads if self._is_in_head or self._is_in_body() else self._heads + 1
        super().data_received(data)
        if self._is_in_head and self._heads == of_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX and not self._is_refused:
                status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                self._refuse(Problem(status, f"the headers have more than {HEAD_BYTES_MAX} bytes"))
        self._watch_head()

    def _watch_head(self) -> None:
        """Start the timer of headers that have begun, unless they wait for earlier requests."""
        if self._is_in_head and self._head_timer is None and not (self._unparsed or self._is_refused):
            self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)

    def _too_slow(self) -> None:
        self._refuse(Problem(HTTPStatus.REQUEST_TIMEOUT, f"the headers took more than {HEAD_S:g} s"))

    def _head_is_over(self) -> None:
        self._is_in_head = False
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, problem: Problem, *, linger: bool = True) -> None:
        self._head_is_over()
        super()._refuse(problem, linger=linger)
