"""Connections of the Redis port that have their replies, or never take them, keep no memory and no socket."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest

import shale
from shale.core.memory_account import MemoryAccount
from shale.env import Env
from shale.resp.backend import Backend
from shale.resp.options import RespOptions
from shale.resp.server import serve_resp
from shale.service.http.server import open_socket
from shale.service.memory.process_memory import ProcessMemory
from shale.service.process import PortServices
from shale.sst.budget import MemoryBudget
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.integration.resp.port import Line, Port, encoded, serve, until

LARGE = 2 << 20
VALUE_BYTES = 60 << 10


def memory_of_process() -> ProcessMemory:
    return ProcessMemory(MemoryAccount(1 << 40), 16 << 20)


def test_an_idle_client_keeps_no_memory_of_a_reply_that_was_too_large() -> None:
    """Its reply was an error instead; all scans of all ports would wait for the memory."""
    memory = memory_of_process()

    async def scenario(served: Port) -> None:
        line = await served.connect()
        keys = [f"k{number}" for number in range(6)]
        for key in keys:
            await line.say("SET", key, "v" * LARGE)
        assert "request fewer keys" in str(await line.say("MGET", *keys))
        assert memory.scans.used_bytes == 0
        assert await line.say("PING") == "PONG"

    serve(scenario, memory=memory)


def test_an_idle_client_keeps_no_memory_of_large_values_with_short_replies() -> None:
    """A large value is read from an SST for ``STRLEN``, and the connection stays open."""
    memory = memory_of_process()

    async def run() -> None:
        listener = open_socket("127.0.0.1", 0, setting="resp.port")
        number = listener.getsockname()[1]
        cache = MemoryBudget(0, large_values=memory.large_values)
        services = PortServices(memory=memory)
        async with (
            asyncio.timeout(60),
            shale.Db.open("db", store=MemoryStore(), cache=cache) as db,
            serve_resp(db, listener, Env.system(), Metrics(), RespOptions(request_timeout_s=1.0), services=services),
        ):
            await db.put(b"large", b"v" * LARGE)
            await db.flush("memtable")
            lines = [Line(*await asyncio.open_connection("127.0.0.1", number)) for _ in range(4)]
            answers: list[Any] = [await line.say("STRLEN", "large") for line in lines]
            used_bytes = memory.responses.used_bytes
            for line in lines:
                line.writer.close()
        assert answers == [LARGE] * 4
        assert used_bytes == 0

    asyncio.run(run())


@pytest.mark.slow
def test_a_client_that_leaves_and_takes_no_replies_does_not_keep_its_socket() -> None:
    """``QUIT`` ends the connection after its replies, which may never be read."""

    async def scenario(number: int, backend: Backend) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.closing(socket.socket()) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", number))
            await loop.sock_sendall(connection, encoded("GET", "value") + encoded("QUIT"))
            await until(lambda: backend.calls["quit"])
            assert backend.connections == 1, "a socket that is open counts"
            await until(lambda: not backend.connections)
            received = 0
            with contextlib.suppress(ConnectionError):
                while data := await loop.sock_recv(connection, 1 << 16):
                    received += len(data)
            assert received < VALUE_BYTES

    async def run() -> None:
        listener = open_socket("127.0.0.1", 0, setting="resp.port")
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        number = listener.getsockname()[1]
        options = RespOptions(send_timeout_s=1.0)
        async with (
            asyncio.timeout(60),
            shale.Db.open("db", store=MemoryStore()) as db,
            serve_resp(db, listener, Env.system(), Metrics(), options) as backend,
        ):
            await db.put(b"value", b"v" * VALUE_BYTES)
            await scenario(number, backend)

    asyncio.run(run())


def test_watched_keys_are_limited() -> None:
    async def scenario(served: Port) -> None:
        line = await served.connect()
        refused = None
        for number in range(20):
            answer = await line.say(
                "WATCH", *[b"%d" % place + b"k" * 60_000 for place in range(number * 5, number * 5 + 5)]
            )
            if answer != "OK":
                refused = str(answer)
                break
        assert refused == "ERR the watched keys are too large"
        assert served.backend.inflight_bytes > 1 << 20
        assert await line.say("UNWATCH") == "OK"
        assert await line.say("PING") == "PONG"
        assert served.backend.inflight_bytes == 0
        assert await line.say("WATCH", "a") == "OK"

    serve(scenario, max_value_bytes=1 << 20, max_command_bytes=2 << 20, max_inflight_bytes=4 << 20)
