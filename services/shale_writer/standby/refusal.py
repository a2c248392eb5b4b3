"""The data ports of a standby: every request is refused, with the address of the active writer.

A standby serves no reads: it would show older rows at an address where clients expect to read their own writes.  That
is the work of ``shale reader``.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from http import HTTPStatus
from typing import cast

from starlette.types import Receive, Scope, Send

from shale.errors import ErrorKind
from shale.server.data_ports import DataPorts
from shale.service.http.problems import Problem, response
from shale.service.http.server import serve_app
from shale.service.tls.certificates import ServerCertificate
from shale.service.tls.listener import HandshakeLimits, TlsListener
from shale.types.writer_sign import WriterStatus

RESP_LINGER_S = 2.0
"""Seconds that a Redis client has to read the error."""

RESP_CONNECTIONS_MAX = 256
"""Further connections of Redis clients are closed at once."""

Active = Callable[[], WriterStatus | None]


def describe(active: WriterStatus | None) -> str:
    """Return who the active writer is, for a refused client."""
    if active is None or active.identity is None:
        return "this process is a standby, and no active writer is known"
    where = active.identity.endpoint or f"on host {active.identity.host or 'unknown'}"
    return f"this process is a standby: the active writer is {where} (epoch {active.epoch})"


class StandbyApp:
    """An ASGI application that answers 503 to every request."""

    def __init__(self, active: Active) -> None:
        self._active = active

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        assert scope["type"] == "http"
        active = self._active()
        identity = None if active is None else active.identity
        problem = Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            describe(active),
            kind=ErrorKind.UNAVAILABLE.value,
            # The next request shall find the active writer, perhaps behind a load balancer.
            headers={"Connection": "close"},
            fields={"state": "standby", "active": None if identity is None else identity.endpoint},
        )
        await response(problem)(scope, receive, send)


class _RespRefusal(asyncio.Protocol):
    """Writes one error, and closes when the client has read it, or after some seconds.

    Args:
        active: returns the active writer.
        refused: the connections that are open; this one is in it until it is lost.
    """

    def __init__(self, active: Active, refused: "set[_RespRefusal]") -> None:
        self._active = active
        self._refused = refused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the error."""
        # The transports of uvloop have the methods, but not the base class.
        stream = cast("asyncio.Transport", transport)
        if len(self._refused) >= RESP_CONNECTIONS_MAX:
            stream.abort()
            return
        self._refused.add(self)
        stream.write(f"-TRYAGAIN {describe(self._active())}\r\n".encode())
        if stream.can_write_eof():  # TLS cannot
            stream.write_eof()
        asyncio.get_running_loop().call_later(RESP_LINGER_S, stream.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature of a protocol
        """Make room for another connection."""
        self._refused.discard(self)


@contextlib.asynccontextmanager
async def refusing(ports: DataPorts, active: Active, *, request_timeout_s: float) -> AsyncIterator[None]:
    """Refuse all requests until the block ends.  The ports stay bound: clients that connect meanwhile wait."""
    async with contextlib.AsyncExitStack() as stack:
        if ports.resp is not None:
            server = await _refuse_resp(ports.resp.dup(), active, ports.certificate)
            stack.callback(server.close)
        http = serve_app(
            StandbyApp(active),
            ports.http.dup(),
            request_timeout_s=request_timeout_s,
            limits=ports.limits,
            certificate=ports.certificate,
        )
        await stack.enter_async_context(http)
        yield


async def _refuse_resp(
    listener: socket.socket, active: Active, certificate: ServerCertificate | None
) -> asyncio.AbstractServer | TlsListener:
    refuse = partial(_RespRefusal, active, set())
    if certificate is None:
        return await asyncio.get_running_loop().create_server(refuse, sock=listener)
    return TlsListener(listener, refuse, certificate, HandshakeLimits(connections_max=RESP_CONNECTIONS_MAX))
