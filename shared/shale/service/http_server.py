"""uvicorn inside our task group: we own the sockets, the signals and the order in which things end."""

import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import cast

import anyio
import uvicorn
from starlette.types import ASGIApp

from shale.errors import InvalidRequestError
from shale.service.http_protocol import BoundedProtocol

BACKLOG = 1024
KEEPALIVE_IDLE_S = 300
"""A connection that is silent for so long is asked whether anybody is there; the kernel's own default is two hours."""


class _Server(uvicorn.Server):
    """A server that leaves signals to the daemon, and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self.listening.set()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to exit; also a cancelled server lets go of its port.

        Connections whose clients do not take what was sent end here: they would wait for them as long as the process.
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
        """Capture none."""
        yield


def open_socket(host: str, port: int, *, setting: str) -> socket.socket:
    """Bind a port; 0 takes a free one.

    Raises:
        InvalidRequestError: the address is taken or not ours; names the setting.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only for sockets that say they are TCP; with it, answers take 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: clients that vanished without a word would hold their places for ever.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidRequestError(f"{setting}: cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listener


def _protocol(connections_max: int | None) -> type[BoundedProtocol]:
    """uvicorn makes connections itself, and is told their class alone."""
    return cast("type[BoundedProtocol]", type("_Bounded", (BoundedProtocol,), {"connections_max": connections_max}))


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, listener: socket.socket, *, request_timeout_s: float, connections_max: int | None = None
) -> AsyncIterator[None]:
    """Serve until the block ends; then accept nothing more and let running requests end.

    Connections beyond ``connections_max`` are refused.  Requests that are still running after ``request_timeout_s`` are
    cancelled.
    """
    config = uvicorn.Config(
        app,
        http=_protocol(connections_max),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(request_timeout_s)),
    )
    server = _Server(config)
    async with anyio.create_task_group() as tg:
        tg.start_soon(server.serve, [listener], name="http")
        try:
            await server.listening.wait()
            yield
        finally:
            server.should_exit = True
