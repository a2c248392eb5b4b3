"""uvicorn's HTTP connection with answers in order, also to malformed requests, and a bound on pipelined requests.

uvicorn closes a connection without an answer if the body of a request is malformed or an earlier request is running.
It makes an object of every request that has arrived, a hundred times the bytes of a short one.  It drops the body of a
request that offers another protocol, so that a put stores an empty value.  And a request whose client has hung up fails
with a traceback if another request waits for it.
"""

import asyncio
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import Any

import httptools
import orjson
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from shale.concurrency.loop_turns import LoopTurns
from shale.service.http.problems import MEDIA_TYPE, Problem, bad_request, document, retry_after_s
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

log = get_logger("http")

HEADERS_MAX = 256
"""Limit of the headers of one request."""
TRAILER_BYTES_MAX = 16 * 1024
PIPELINED_MAX = 4
"""Requests of a connection that wait for an earlier one; the bytes of further ones are kept as they are."""
LINGER_S = 1.0
"""Seconds after a refusal in which the rest of a request is received and dropped: a connection that is closed at once
is reset, and the client may not see why."""
REST_S = 30.0
"""Seconds that the rest of a body may take whose request has been answered."""

_STEP_BYTES = 512
"""Bytes to parse at a time if they may hold many requests."""
_LARGE_BYTES = 16 * 1024
"""Of so many bytes most are those of a body, which need no search for requests."""
_LENGTH_DIGITS_MAX = 18
_HEAD_END = b"\r\n\r\n"
_VERSION = b"HTTP/1."
"""Part of every request line."""


class OrderedProtocol(HttpToolsProtocol):
    """A connection that answers its requests in the order of their arrival."""

    flow: "_HeldFlow"
    metrics: Metrics | None = None
    """Counts refusals."""
    turns: LoopTurns | None = None
    """Of all connections: a request that came before the answer to the one before waits for its turn."""
    _running: RequestResponseCycle | None = None
    _refusal: bytes | None = None
    """Sent after the answers to earlier requests."""
    _is_refused = False
    _is_next = False
    """Whether an answer has just ended, and the next request begins."""
    _held: tuple[RequestResponseCycle, Any] | None = None
    """A request that waits until the client has read the response before it."""
    _close_timer: asyncio.TimerHandle | None = None
    _has_head = False
    _hosts = 0
    _trailer_bytes = 0
    _body_left = 0
    """Bytes that are still to come of a body whose length is known."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin a connection."""
        super().connection_made(transport)
        self.flow = _HeldFlow(transport)  # pyright: ignore[reportIncompatibleVariableOverride]
        self._unparsed = bytearray()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all requests that the client has hung up."""
        for cycle in (self._running, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None:
                _disconnect(cycle)
        self.pipeline.clear()
        self._unparsed.clear()
        self._cancel_close()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        # Each has a method of this connection: it would keep its memory until Python collects cycles.
        self.cycle = self._running = self._held = self.scope = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Parse bytes, or keep them while too many requests wait."""
        if self._is_refused or self.transport.is_closing():
            return
        if len(data) > _LARGE_BYTES and not (self._is_in_body() or self._unparsed):
            self._take(data[:_STEP_BYTES])  # with the head of a request, most of the time
            data = data[_STEP_BYTES:]
        self._take(data)

    def _take(self, data: bytes) -> None:
        if self._is_refused or self.transport.is_closing():
            return
        if self._unparsed or (
            len(data) - self._body_left > _STEP_BYTES and data.count(_VERSION, self._body_left) > PIPELINED_MAX
        ):
            self._unparsed += data
            self._parse_kept()
        else:
            self._parse(data)

    def _parse_kept(self) -> None:
        """Parse kept bytes until enough requests wait."""
        while self._unparsed and len(self.pipeline) < PIPELINED_MAX and not self._is_refused:
            end = self._unparsed.find(_HEAD_END, 0, _STEP_BYTES)
            size = _STEP_BYTES if end < 0 else end + len(_HEAD_END)
            step = bytes(self._unparsed[:size])
            del self._unparsed[:size]
            self._parse(step)
        if self._unparsed:
            self.flow.hold()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(self._problem_of(error))

    def _decline_upgrade(self, rest: bytes) -> None:
        """Go on with a request that offers another protocol; the parser takes its body for that protocol."""
        self.parser = _parser_for(_BodyOfUpgrade(self))
        framing = [each for each in self.headers if each[0] in (b"content-length", b"transfer-encoding")]
        self._parse(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join([b"%b: %b\r\n" % each for each in framing]))
        if rest and not self._is_refused:
            self._parse(rest)

    def on_message_begin(self) -> None:
        """Begin a request."""
        # Not with any byte: the parser skips empty lines, and no other timer would begin.
        self._unset_keepalive_if_required()
        self._has_head = False
        self._trailer_bytes = self._body_left = self._hosts = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; drop a trailer."""
        headers = self.headers
        if self._has_head:
            self._trailer_bytes += len(name) + len(value)
            if self._trailer_bytes > TRAILER_BYTES_MAX:
                raise _HeadRefusedError(_too_large(f"the trailers have more than {TRAILER_BYTES_MAX} bytes"))
            return
        if len(headers) >= HEADERS_MAX:
            raise _HeadRefusedError(_too_large(f"there are more than {HEADERS_MAX} headers"))
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name == b"content-length":
            self._body_left = int(value) if value.isdigit() and len(value) <= _LENGTH_DIGITS_MAX else 0
        elif name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
        elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            raise _HeadRefusedError(_unknown_coding(value))
        headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Start a request, or let it wait for an earlier one."""
        if self._hosts != 1 and (self._hosts or self.parser.get_http_version() != "1.0"):
            # RFC 9112, 3.2: proxies and servers might take different hosts.
            raise _HeadRefusedError(bad_request(f"there are {self._hosts} Host headers: exactly one is required"))
        self._has_head = True
        super().on_headers_complete()
        if self.pipeline:
            self.flow.hold()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._body_left = max(self._body_left - len(body), 0)  # 0 in a body of chunks
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the body of a request."""
        self._body_left = 0
        if self.parser.should_upgrade():
            return  # before its body: see ``_decline_upgrade``
        cycle = self.cycle
        if cycle.response_complete:
            self._cancel_close()
            return
        cycle.more_body = False
        cycle.message_event.set()

    def on_response_complete(self) -> None:
        """Start the next request, or send a refusal that has waited."""
        self._is_next = True
        super().on_response_complete()
        self._is_next = False
        if self.transport.is_closing():
            return
        if self._unparsed:
            self._unset_keepalive_if_required()
            self._parse_kept()
        elif not self.pipeline:
            self.flow.release()
        running = self._running
        if self._refusal is not None and self._is_idle():
            self._send_refusal(self._refusal)
        elif running is not None and running.more_body and running is self.cycle and running.response_complete:
            self._cancel_close()
            self._close_timer = self.loop.call_later(REST_S, self.transport.close)

    def resume_writing(self) -> None:
        """Go on with a response, or start the request that has waited for the client to read the one before."""
        super().resume_writing()
        held, self._held = self._held, None
        if held is not None:
            self._start_in_turn(*held)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        if self.flow.write_paused:
            # Its response would be made, and wait in memory that nothing counts.
            self._held = (cycle, app)
        elif self._is_next and self.turns is not None:
            self.turns.add(partial(self._start_in_turn, cycle, app))
        else:
            super()._start_asgi_task(cycle, app)

    def _start_in_turn(self, cycle: RequestResponseCycle, app: Any) -> None:
        if not cycle.disconnected:
            super()._start_asgi_task(cycle, app)

    def _is_in_body(self) -> bool:
        """Return whether the body of a request has begun and not ended."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.more_body

    def _is_idle(self) -> bool:
        return not self.pipeline and (self._running is None or self._running.response_complete)

    def _problem_of(self, error: httptools.HttpParserError) -> Problem:
        cause = error.__context__
        if isinstance(cause, _HeadRefusedError):
            return cause.problem
        return bad_request(f"the request is malformed: {error}")

    def _refuse(self, problem: Problem, *, linger: bool = True) -> None:
        """Answer what is no request after the answers to earlier requests, and close the connection."""
        self._is_refused = True
        if self.metrics is not None:
            self.metrics.counter("shale_http_refusals_total", status=str(problem.status.value)).inc()
        self._unparsed.clear()
        self._unset_keepalive_if_required()
        log.debug(Event.HTTP_REQUEST_REFUSED, status=problem.status.value, reason=problem.detail)
        refusal = _refusal_of(problem)
        broken: RequestResponseCycle | None = self.cycle
        if broken is not None and self._is_in_body() and not broken.response_complete:
            _disconnect(broken)
            if broken is not self._running:
                self.pipeline = deque(each for each in self.pipeline if each[0] is not broken)
            elif broken.response_started:
                self.transport.close()  # in the middle of another answer
                return
            else:
                self._running = None
        if self._is_idle():
            self._send_refusal(refusal, linger=linger)
        else:
            self._refusal = refusal
            self.flow.hold()

    def _send_refusal(self, refusal: bytes, *, linger: bool = True) -> None:
        self._unset_keepalive_if_required()
        self._cancel_close()
        self._refusal = None
        self.transport.write(refusal)
        if linger and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.release()
            self._close_timer = self.loop.call_later(LINGER_S, self.transport.close)
        else:
            self.transport.close()

    def _cancel_close(self) -> None:
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None


class _HeldFlow(FlowControl):
    """Flow control that reads nothing while requests wait: uvicorn reads on whenever a request takes its body."""

    is_held = False

    def resume_reading(self) -> None:
        """Read on, unless reading is held."""
        if not self.is_held:
            super().resume_reading()

    def hold(self) -> None:
        """Read nothing until ``release``."""
        self.is_held = True
        self.pause_reading()

    def release(self) -> None:
        """Read on."""
        if self.is_held:
            self.is_held = False
            self.resume_reading()


class _BodyOfUpgrade:
    """Passes on what a parser finds, without the head of its first request: the connection has it already."""

    def __init__(self, protocol: OrderedProtocol) -> None:
        self._protocol = protocol
        self._is_first = True
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        """Begin a request after the first one."""
        if not self._is_first:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Pass on a part of the target."""
        if not self._is_first:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Pass on a header, or a trailer of the first request."""
        if not self._is_first:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        """Pass on the end of the headers, and all that follows."""
        if self._is_first:
            self._is_first = False
        else:
            self._protocol.on_headers_complete()


class _HeadRefusedError(Exception):
    """Ends the parsing of a request; the parser raises an error of its own in this context."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def _parser_for(target: object) -> httptools.HttpRequestParser:
    """Return a parser with the leniency that uvicorn's have: data after the last request of a connection."""
    parser = httptools.HttpRequestParser(target)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _disconnect(cycle: RequestResponseCycle) -> None:
    """Let a request end without an answer."""
    if not cycle.response_complete:
        cycle.disconnected = True
    cycle.message_event.set()


def _too_large(detail: str) -> Problem:
    return Problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail)


def _unknown_coding(value: bytes) -> Problem:
    shown = value[:40].decode("latin-1")
    return Problem(HTTPStatus.NOT_IMPLEMENTED, f"Transfer-Encoding: {shown!r} is not supported, only chunked")


def _refusal_of(problem: Problem) -> bytes:
    body = orjson.dumps(document(problem))
    pause_s = retry_after_s(problem.status)
    retry = "" if pause_s is None else f"retry-after: {pause_s}\r\n"
    head = (
        f"HTTP/1.1 {problem.status.value} {problem.status.phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
        f"content-length: {len(body)}\r\n{retry}connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
