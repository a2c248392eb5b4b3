"""The Redis port: accepts connections, and ends them in order (docs/resp.md)."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import anyio
from anyio.abc import TaskGroup

from shale.engine.db import Db
from shale.engine.db_reader import DbReader
from shale.env import Env
from shale.resp.backend import Backend
from shale.resp.commands.table import BY_WIRE_NAME, COMMANDS, OF_READERS
from shale.resp.connection import Connection
from shale.resp.failures import DRAINING
from shale.resp.instruments import export
from shale.resp.options import RespOptions
from shale.telemetry.metrics import Metrics

TICK_S = 1.0
LINGER_S = 2.0
"""How long a refused client may take to read why."""


class RespServer:
    """The connections of one port."""

    def __init__(self, backend: Backend, group: TaskGroup) -> None:
        self._backend = backend
        self._group = group
        self._connections: set[Connection] = set()
        self._emptied = anyio.Event()

    def accept(self) -> asyncio.BaseProtocol:
        """The protocol of a new connection."""
        table = BY_WIRE_NAME if self._backend.reader is None else OF_READERS
        return Connection(self._backend, table, self._begin)

    async def watch(self) -> None:
        """End connections that are silent, and commands that wait, for too long; until cancelled."""
        options = self._backend.options
        tick_s = min(TICK_S, options.request_timeout_s / 4, (options.idle_timeout_s or TICK_S) / 4)
        while True:
            await anyio.sleep(tick_s)
            for connection in list(self._connections):
                connection.silent_ticks += 1
                connection.busy_ticks += 1
                connection.age_ticks += 1
                if connection.is_running and connection.busy_ticks * tick_s > options.request_timeout_s:
                    connection.give_up()
                silent_s = connection.silent_ticks * tick_s
                is_late = connection.is_waiting and silent_s > options.request_timeout_s
                if connection.is_locked:  # a byte now and then would hold the place of a client that has the password
                    is_late = connection.age_ticks * tick_s > options.request_timeout_s
                if connection.is_refused:
                    is_late = silent_s > LINGER_S
                if is_late or (connection.is_idle and 0 < options.idle_timeout_s < silent_s):
                    connection.end()

    async def drain(self, timeout_s: float) -> None:
        """Take no new commands, and return when those that run are answered, or the time is over."""
        self._backend.is_draining = True
        for connection in list(self._connections):
            if connection.is_resting:
                connection.end()
        with anyio.move_on_after(timeout_s, shield=True):
            while self._connections:
                self._emptied = anyio.Event()
                await self._emptied.wait()

    def _begin(self, connection: Connection) -> None:
        backend = self._backend
        if backend.is_draining or backend.connections >= backend.options.max_connections:
            backend.connections_refused += 1
            connection.refuse(DRAINING if backend.is_draining else "ERR max number of clients reached")
            connection.end()
            return
        backend.connections_accepted += 1
        backend.connections += 1
        self._connections.add(connection)
        self._group.start_soon(self._serve, connection, name="resp")

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            self._backend.connections -= 1
            self._connections.discard(connection)
            self._emptied.set()


@contextlib.asynccontextmanager
async def serving_resp(
    db: Db | DbReader,
    listener: socket.socket,
    env: Env,
    metrics: Metrics,
    options: RespOptions,
    *,
    token: str | None = None,
    drain_timeout_s: float = 10.0,
) -> AsyncIterator[Backend]:
    """Serve until the block ends; then accept nothing more and let commands that run end.

    Args:
        db: the open database; of a reader commands that write are refused.
        listener: bound already; closed in the end.
        env: the outside world.
        metrics: counts here.
        options: limits.
        token: what clients must say with AUTH; ``None``: nothing.
        drain_timeout_s: how long commands may take to end; then they are cancelled.
    """
    backend = Backend(db, env, options, token, COMMANDS)
    export(backend, metrics)
    async with anyio.create_task_group() as group:
        server = RespServer(backend, group)
        listening = await asyncio.get_running_loop().create_server(server.accept, sock=listener)
        group.start_soon(server.watch, name="resp watch")
        try:
            yield backend
        finally:
            listening.close()
            await server.drain(drain_timeout_s)
            group.cancel_scope.cancel()
