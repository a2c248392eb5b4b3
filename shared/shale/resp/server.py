"""The Redis server: accepts connections, enforces time limits, and drains (docs/reference/resp.md)."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import anyio
from anyio.abc import TaskGroup

from shale.core.address_limits import ConnectionCounts
from shale.engine.db import Db
from shale.engine.db_reader import DbReader
from shale.env import Env
from shale.resp.backend import Backend
from shale.resp.commands.command_table import COMMANDS, READER_COMMANDS, WRITER_COMMANDS
from shale.resp.connection import Connection
from shale.resp.errors import DRAINING, TRANSACTION_TOO_OLD
from shale.resp.metrics import export
from shale.resp.options import RespOptions
from shale.service.process import NO_SERVICES, PortServices
from shale.service.tls.certificates import ServerCertificate
from shale.service.tls.listener import HandshakeLimits, TlsListener
from shale.telemetry.metrics import Metrics

TICK_S = 1.0
LINGER_S = 2.0
"""Seconds that a refused client has to read the error."""


class RespServer:
    """The connections of one port."""

    def __init__(self, backend: Backend, group: TaskGroup) -> None:
        self._backend = backend
        self._group = group
        self._connections: set[Connection] = set()
        self._emptied = anyio.Event()
        self._addresses = ConnectionCounts(backend.options.max_connections_per_address)
        """With TLS it also has those that have ended, until their transport ends."""
        self._has_tls = False

    def accept(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        table = WRITER_COMMANDS if self._backend.reader is None else READER_COMMANDS
        return Connection(self._backend, table, self._begin, self._forget)

    async def listen(
        self, listener: socket.socket, certificate: ServerCertificate | None
    ) -> asyncio.AbstractServer | TlsListener:
        """Accept connections from now on.

        Args:
            listener: a bound socket; closing what is returned closes it.
            certificate: of TLS; ``None``: no TLS.
        """
        self._has_tls = certificate is not None
        self._backend.memory.count_connections(lambda: self._addresses.total, tls=self._has_tls)
        if certificate is None:
            return await asyncio.get_running_loop().create_server(self.accept, sock=listener)
        limits = HandshakeLimits(
            open_count=lambda: self._addresses.total,
            connections_max=self._backend.options.max_connections,
            per_address=self._addresses,
        )
        return TlsListener(listener, self.accept, certificate, limits)

    async def watch(self) -> None:
        """Close idle connections and cancel commands that exceed their time limit, until cancelled."""
        options = self._backend.options
        tick_s = min(TICK_S, options.request_timeout_s / 4, (options.idle_timeout_s or TICK_S) / 4)
        while True:
            await anyio.sleep(tick_s)
            for connection in list(self._connections):
                connection.silent_ticks += 1
                connection.busy_ticks += 1
                connection.age_ticks += 1
                if connection.is_running and connection.busy_ticks * tick_s > options.request_timeout_s:
                    connection.cancel_command()
                silent_s = connection.silent_ticks * tick_s
                is_late = connection.is_input_overdue and silent_s > options.request_timeout_s
                if connection.needs_auth:
                    # Its age counts: otherwise a client could hold a connection with a byte now and then.
                    is_late = connection.age_ticks * tick_s > options.request_timeout_s
                else:
                    connection.age_ticks = 0  # a reload may give an open port its first token
                if connection.is_refused:
                    is_late = silent_s > LINGER_S
                connection.held_ticks = connection.held_ticks + 1 if connection.holds_much else 0
                if connection.held_ticks * tick_s > options.request_timeout_s and not connection.is_running:
                    connection.refuse(TRANSACTION_TOO_OLD.format(options.request_timeout_s))
                    is_late = True
                if is_late or (connection.is_idle and 0 < options.idle_timeout_s < silent_s):
                    connection.end()

    async def drain(self, timeout_s: float) -> None:
        """Reject new commands; return when the running ones have finished, or after ``timeout_s``."""
        self._backend.is_draining = True
        for connection in list(self._connections):
            if connection.is_waiting_for_input:
                connection.end()
        with anyio.move_on_after(timeout_s, shield=True):
            while self._connections:
                self._emptied = anyio.Event()
                await self._emptied.wait()

    def _begin(self, connection: Connection) -> None:
        backend = self._backend
        is_within = self._addresses.opened(connection.host)
        connection.is_counted = True
        if backend.is_draining or backend.connections >= backend.options.max_connections:
            backend.connections_refused += 1
            connection.refuse(DRAINING if backend.is_draining else "ERR max number of clients reached")
            connection.end()
            return
        if not is_within:
            backend.connections_refused += 1
            connection.refuse("ERR max number of clients of this address reached")
            connection.end()
            return
        backend.connections_accepted += 1
        backend.connections += 1
        self._connections.add(connection)
        self._group.start_soon(self._serve, connection, name="resp")

    async def _serve(self, connection: Connection) -> None:
        try:
            with contextlib.suppress(OSError):  # of the socket: the client has gone, and others stay
                await connection.run()
        finally:
            self._backend.connections -= 1
            self._connections.discard(connection)
            self._emptied.set()
            if not self._has_tls:  # the socket ends in the next turn, and its client may connect again before
                self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        """Count a connection no more; the second call does nothing."""
        if connection.is_counted:
            connection.is_counted = False
            self._addresses.closed(connection.host)


@contextlib.asynccontextmanager
async def serve_resp(
    db: Db | DbReader,
    listener: socket.socket,
    env: Env,
    metrics: Metrics,
    options: RespOptions,
    *,
    services: PortServices = NO_SERVICES,
    drain_timeout_s: float = 10.0,
) -> AsyncIterator[Backend]:
    """Serve until the block ends; then accept no more connections and let running commands finish.

    Args:
        db: the open database; a reader rejects writes.
        listener: a bound socket; closed at the end.
        env: clock, randomness, ids and threads.
        metrics: the metrics registry.
        options: limits and durability.
        services: what the ports of the process share; without tokens there is no authentication.
        drain_timeout_s: seconds that running commands have at the end; then they are cancelled.
    """
    backend = Backend(db, env, options, services, COMMANDS, metrics=metrics)
    export(backend, metrics, COMMANDS)
    async with anyio.create_task_group() as group:
        server = RespServer(backend, group)
        listening = await server.listen(listener, services.certificate)
        group.start_soon(server.watch, name="resp watch")
        try:
            yield backend
        finally:
            listening.close()
            await server.drain(drain_timeout_s)
            group.cancel_scope.cancel()
