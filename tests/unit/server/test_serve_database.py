"""``serve_database`` alone: what it serves, and how each reason to stop ends it."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

import shale
from shale.api.app import Api
from shale.api.build import build_reader_api, build_writer_api
from shale.env import Env
from shale.errors import FencedError, InvalidDbState
from shale.server.data_ports import DataPorts, open_data_ports, serve_database
from shale.server.settings import ServerSettings
from shale.service.health import ServiceState
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale_reader.settings import ReaderSettings
from shale_writer.settings import WriterSettings
from tests.unit.protocol.conftest import run
from tests.unit.service.processes import make_process

SETTINGS = {"database": {"url": "memory:///db"}, "http": {"port": 0}, "resp": {"enabled": True, "port": 0}}


class Served:
    """A writer's process that serves a database in memory."""

    def __init__(self, settings: ServerSettings, db: Any, api: Api, ports: DataPorts, env: Env) -> None:
        self.db, self.api, self.ports = db, api, ports
        self.process = make_process(settings, "writer", env=env)
        self.ended = anyio.Event()
        self.error: Exception | None = None

    async def serve(self) -> None:
        """Serve until the end, and record the outcome."""
        try:
            await serve_database(self.process, self.ports, self.db, self.api)
        except Exception as error:  # noqa: BLE001 - the tests look at it
            self.error = error
        self.ended.set()

    async def ask(self, port: str, request: bytes, end: bytes) -> bytes:
        """Send a request to a port and read up to ``end``."""
        answer = b""
        async with await anyio.connect_tcp("127.0.0.1", self.ports.numbers()[port]) as stream:
            await stream.send(request)
            while end not in answer:
                answer += await stream.receive()
        return answer


Scenario = Callable[[Served], Awaitable[None]]


def with_writer(store: MemoryStore, scenario: Scenario) -> None:
    async def main() -> None:
        env, settings = Env.system(), WriterSettings.model_validate(SETTINGS)
        with open_data_ports(settings) as ports:
            db = await shale.Db.open("db", store=store, env=env, manifest_poll_interval="10ms")
            await db.put(b"k", b"value")
            api = build_writer_api(db, settings.http, Metrics(), env, max_key_bytes=100)
            await tell(Served(settings, db, api, ports, env), scenario)
            with suppress(FencedError):
                await db.close("none")

    run(main)


async def tell(served: Served, scenario: Scenario) -> None:
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(served.serve)
            while not served.process.health.started:
                await anyio.lowlevel.checkpoint()
            await scenario(served)
            await served.ended.wait()


def test_both_ports_serve_the_database_and_a_stop_ends_them() -> None:
    async def scenario(served: Served) -> None:
        assert served.process.health.state is ServiceState.ACTIVE
        port = served.ports.numbers()["port"]
        answer = await served.ask("port", b"GET /v1/kv/k HTTP/1.1\r\nHost: x\r\n\r\n", b"value")
        assert answer.startswith(b"HTTP/1.1 200")
        assert await served.ask("resp_port", b"GET k\r\n", b"value\r\n") == b"$5\r\nvalue\r\n"
        assert not served.api.draining
        served.process.draining.set()
        await served.ended.wait()
        assert served.error is None
        assert served.api.draining
        assert await served.db.get(b"k") == b"value"  # the caller closes the database
        with pytest.raises(OSError, match="connection attempts failed"):
            await anyio.connect_tcp("127.0.0.1", port)

    with_writer(MemoryStore(), scenario)


def test_a_browser_at_the_root_is_told_where_the_console_is_and_a_program_gets_json() -> None:
    async def scenario(served: Served) -> None:
        ask = b"%b / HTTP/1.1\r\nHost: %b\r\nAccept: %b\r\nConnection: close\r\n\r\n"
        html = b"text/html,application/xhtml+xml,*/*;q=0.8"
        console = b'href="http://%b:%d/"'
        for host, name in ((b"127.0.0.1:8080", b"127.0.0.1"), (b"[::1]:8080", b"[::1]"), (b"localhost", b"localhost")):
            page = await served.ask("port", ask % (b"GET", host, html), b"</html>")
            assert page.startswith(b"HTTP/1.1 200")
            assert console % (name, served.process.admin_port) in page
        elsewhere = await served.ask("port", ask % (b"GET", b'db.example"><script>:8080', html), b"</html>")
        assert b"forward it" in elsewhere
        assert b"<script" not in elsewhere
        for method, accept in ((b"GET", b"*/*"), (b"GET", b"application/json"), (b"POST", html)):
            answer = await served.ask("port", ask % (method, b"a", accept), b"}")
            assert answer.startswith(b"HTTP/1.1 404")
            assert b"no such path; see /openapi.json" in answer
        served.process.draining.set()

    with_writer(MemoryStore(), scenario)


def test_a_writer_that_was_replaced_says_so_before_it_ends() -> None:
    store = MemoryStore()

    async def scenario(served: Served) -> None:
        successor = await shale.Db.open("db", store=store)
        await served.ended.wait()
        await successor.close()
        assert isinstance(served.error, FencedError)
        assert served.process.health.state is ServiceState.FENCED
        assert served.api.draining

    with_writer(store, scenario)


def test_a_reader_that_failed_ends_with_its_error_and_is_not_fenced() -> None:
    class FailingReader:
        """A reader that fails on request."""

        def __init__(self, reader: Any) -> None:
            self._reader, self.fails = reader, anyio.Event()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._reader, name)

        async def failed(self) -> Exception:
            await self.fails.wait()
            return InvalidDbState("the lease has expired")

    async def scenario(served: Served) -> None:
        assert not served.ended.is_set()
        served.db.fails.set()
        await served.ended.wait()
        assert isinstance(served.error, InvalidDbState)
        assert served.process.health.state is ServiceState.ACTIVE

    async def main() -> None:
        store, env, settings = MemoryStore(), Env.system(), ReaderSettings.model_validate(SETTINGS)
        async with shale.Db.open("db", store=store, env=env):
            pass
        async with shale.DbReader.open("db", store=store, env=env) as reader:
            with open_data_ports(settings) as ports:
                api = build_reader_api(reader, settings.http, Metrics(), env)
                await tell(Served(settings, FailingReader(reader), api, ports, env), scenario)

    run(main)
