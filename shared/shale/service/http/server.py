"""uvicorn inside a task group of the daemon, which owns the sockets, the signals and the order of shutdown."""

import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, cast

import anyio
import uvicorn
from starlette.types import ASGIApp

from shale.concurrency.loop_turns import LoopTurns
from shale.core.address_limits import ConnectionCounts
from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale.service.http.connection import BoundedProtocol
from shale.service.memory.unread_responses import UnreadResponses
from shale.service.tls.certificates import ServerCertificate
from shale.service.tls.listener import HandshakeLimits, TlsListener
from shale.telemetry.metrics import Metrics

BACKLOG = 1024
KEEP_ALIVE_S = 75
"""How long a connection may be silent between two requests."""
UNSENT_BYTES_MAX = 256 << 10
_TCP_NOTSENT_LOWAT = 25
"""Of Linux; older versions of Python have no name for it."""
KEEPALIVE_IDLE_S = 300
"""Seconds of silence before TCP keep-alive probes start; the kernel's default is two hours."""


class _Server(uvicorn.Server):
    """A server that leaves signals to the daemon, and sets an event when it listens."""

    def __init__(self, config: uvicorn.Config, certificate: ServerCertificate | None) -> None:
        super().__init__(config)
        self._certificate = certificate
        self.listening = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        if self._certificate is None:
            await super().startup(sockets)
        else:
            await self._startup_tls(self._certificate, sockets or [])
        self.listening.set()

    async def _startup_tls(self, certificate: ServerCertificate, sockets: list[socket.socket]) -> None:
        """Start as uvicorn does, but with handshakes that are limited in number and time."""
        await self.lifespan.startup()
        protocol = cast("type[BoundedProtocol]", self.config.http_protocol_class)
        make = partial(protocol, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        limits = HandshakeLimits(
            open_count=self.server_state.connections.__len__,
            connections_max=protocol.connections_max,
            per_address=protocol.per_address,
        )
        listeners: list[Any] = [TlsListener(each, make, certificate, limits) for each in sockets]
        self.servers = listeners
        self.started = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to exit; a cancelled server closes its port, too.

        Connections whose clients do not read their responses are aborted here: they would wait as long as the process.
        """
        try:
            await super().serve(sockets)
        finally:
            for connection in list(self.server_state.connections):
                if (transport := getattr(connection, "transport", None)) is not None:
                    transport.abort()
            for server in getattr(self, "servers", ()):  # there are none before ``startup``
                server.close()
            for listener in sockets or ():
                listener.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


def limit_unsent(listener: socket.socket) -> None:
    """Let the kernel buffer little that it has not sent yet; connections inherit it.

    Otherwise each connection whose client reads nothing holds some megabytes of the container's memory in the kernel.
    What was sent and is not acknowledged is not limited, so that fast connections stay fast.
    """
    if sys.platform == "linux":
        listener.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)


def open_socket(host: str, port: int, *, setting: str) -> socket.socket:
    """Bind a TCP port and listen; port 0 takes any free one.

    Raises:
        InvalidRequestError: the address is in use or not of this host; names the setting.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only on sockets whose protocol is TCP; with it, responses take 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: without it, clients that vanished would hold their connections for ever.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        limit_unsent(listener)
        if hasattr(socket, "TCP_KEEPIDLE"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidRequestError(f"{setting}: cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listener


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of the connections of one port.

    Args:
        connections_max: further connections are refused; ``None``: no limit.
        per_address: counts and limits the connections of one address; ``None``: no limit.
        send_timeout_s: a client that reads nothing of its responses for so long is dropped.
        unread: counts what clients have not read; ``None``: it is not counted.
        metrics: counts refusals; ``None``: they are not counted.
    """

    connections_max: int | None = None
    per_address: ConnectionCounts | None = None
    send_timeout_s: float = 30.0
    unread: UnreadResponses | None = None
    metrics: Metrics | None = None


NO_LIMITS = ConnectionLimits()


def _protocol(limits: ConnectionLimits) -> type[BoundedProtocol]:
    """Return a connection class with these limits: uvicorn takes a class and makes the connections itself."""
    names = ("connections_max", "per_address", "send_timeout_s", "unread", "metrics")
    members = {name: getattr(limits, name) for name in names} | {"turns": LoopTurns(), "refused": set()}
    return cast("type[BoundedProtocol]", type("_Bounded", (BoundedProtocol,), members))


@contextlib.asynccontextmanager
async def serve_app(
    app: ASGIApp,
    listener: socket.socket,
    *,
    request_timeout_s: float,
    limits: ConnectionLimits = NO_LIMITS,
    certificate: ServerCertificate | None = None,
) -> AsyncIterator[None]:
    """Serve until the block ends; then accept no more connections and let running requests finish.

    Args:
        app: the ASGI application.
        listener: a bound socket; it is closed at the end.
        request_timeout_s: seconds that running requests have at the end; then they are cancelled.
        limits: of the connections.
        certificate: of TLS; ``None``: no TLS.
    """
    config = uvicorn.Config(
        app,
        http=_protocol(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(request_timeout_s)),
    )
    server = _Server(config, certificate)
    async with anyio.create_task_group() as tg:
        tg.start_soon(server.serve, [listener], name="http")
        try:
            await server.listening.wait()
            yield
        finally:
            server.should_exit = True
