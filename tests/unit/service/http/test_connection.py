"""Loopback connections whose clients never complete their headers."""

import asyncio
import gc
import json
import socket
import struct
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from shale.api.messages import PIECE_BYTES, Response
from shale.api.scan.formats import JsonLines
from shale.api.scan.stream import ScanSource, ScanStream
from shale.concurrency.byte_budget import ByteBudget
from shale.concurrency.loop_turns import LoopTurns
from shale.core.address_limits import ConnectionCounts
from shale.core.memory_account import MemoryAccount
from shale.service.http import connection as http_protocol
from shale.service.http.bodies import BodyBudget, BodyPace
from shale.service.http.problems import Problem
from shale.service.http.server import ConnectionLimits, open_socket, serve_app
from shale.service.memory.process_memory import ProcessMemory
from shale.service.memory.unread_responses import UnreadResponses

if TYPE_CHECKING:
    from shale.engine.scan.scan import Scan


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


def on_a_connection(
    scenario: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    app: Any = hello,
    **limits: Any,
) -> None:
    async def main() -> None:
        listener = open_socket("127.0.0.1", 0, setting="http.port")
        port = listener.getsockname()[1]
        async with serve_app(app, listener, request_timeout_s=1, limits=ConnectionLimits(**limits)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.timeout(30):
                await scenario(reader, writer)
            writer.close()

    asyncio.run(main())


async def refusal(reader: asyncio.StreamReader) -> dict[str, Any]:
    head, body = (await reader.read()).split(b"\r\n\r\n", 1)
    assert b"content-type: application/problem+json" in head
    fields: dict[str, Any] = json.loads(body)
    assert head.startswith(b"HTTP/1.1 %d " % fields["status"])
    return fields


def test_headers_without_end_are_refused() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\n")
        for number in range(5):
            writer.write(b"x-%d: %b\r\n" % (number, b"v" * 30_000))
            await writer.drain()
        assert (await refusal(reader))["status"] == 431

    on_a_connection(scenario)


def test_what_is_no_http_gets_a_problem_document() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"NONSENSE\r\n\r\n")
        assert (await refusal(reader))["status"] == 400

    on_a_connection(scenario)


def test_a_path_that_the_server_cannot_take_gets_a_problem_document() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /v1/kv/%b HTTP/1.1\r\nhost: a\r\n\r\n" % (b"k" * 65_535))
        assert (await refusal(reader))["status"] == 400

    on_a_connection(scenario)


def test_a_client_that_says_nothing_or_never_ends_its_headers_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S", 0.2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""

    async def dribbling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nx-a: ")
        while not reader.at_eof() and not writer.is_closing():
            writer.write(b"v")
            try:
                async with asyncio.timeout(0.02):
                    assert b" 408 " in await reader.read(1 << 16)
                    return
            except TimeoutError:
                continue

    on_a_connection(silent)
    on_a_connection(dribbling)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"\r\n", b"\r\n\r\n\r\n"])
def test_empty_lines_do_not_keep_a_connection_open(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S", 0.2)
    monkeypatch.setattr("shale.service.http.server.KEEP_ALIVE_S", 0.2)

    async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        assert await reader.read() == b""

    async def after_a_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await reader.readuntil(b"hi")
        writer.write(sent)
        assert await reader.read() == b""

    async def again_and_again(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            writer.write(sent)
            try:
                async with asyncio.timeout(0.02):
                    assert await reader.read(1) == b""
            except TimeoutError:
                continue
            except ConnectionResetError:  # it was closed while these bytes were on their way
                return

    for scenario in (at_once, after_a_request, again_and_again):
        on_a_connection(scenario)


def test_requests_one_after_another_are_served() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in (
            b"GET / HTTP/1.1\r\n",
            b"host: a\r\nx: %b\r\n\r\n" % (b"v" * 20_000),
            b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        ):
            writer.write(piece)
            await writer.drain()
        for _ in range(2):
            assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200")

    on_a_connection(scenario)


def test_a_response_without_end_does_not_delay_the_end_of_the_server() -> None:
    gone = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        http_protocol.close_at_shutdown(scope)
        await receive()  # the request
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        gone.set()

    async def main() -> None:
        listener = open_socket("127.0.0.1", 0, setting="http.port")
        async with asyncio.timeout(30):
            async with serve_app(endless, listener, request_timeout_s=3600):
                reader, writer = await asyncio.open_connection(*listener.getsockname())
                writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
                await reader.readuntil(b"begun")
            await gone.wait()
        writer.close()

    asyncio.run(main())


class AnnouncingCounts(ConnectionCounts):
    """Counts that say when the server has a connection."""

    def __init__(self) -> None:
        super().__init__(10)
        self.has_one = asyncio.Event()

    def opened(self, address: str) -> bool:
        self.has_one.set()
        return super().opened(address)


@pytest.mark.parametrize(("sent", "answered"), [(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", True), (b"", False)])
def test_a_client_that_connects_before_the_server_stops_has_time_for_a_request(sent: bytes, answered: bool) -> None:
    async def main() -> None:
        listener, counts, stop = open_socket("127.0.0.1", 0, setting="http.port"), AnnouncingCounts(), asyncio.Event()
        address = listener.getsockname()

        async def serve() -> None:
            async with serve_app(hello, listener, request_timeout_s=3600, limits=ConnectionLimits(per_address=counts)):
                await stop.wait()

        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(serve())
            reader, writer = await asyncio.open_connection(*address)
            await counts.has_one.wait()
            stop.set()
            # It is closed when connections are told to end, which nothing announces.
            while listener.fileno() >= 0:  # noqa: ASYNC110
                await asyncio.sleep(0)
            writer.write(sent)
            response = await reader.read()
            writer.close()
        assert response.startswith(b"HTTP/1.1 200 ") is answered
        assert response.endswith(b"hi") is answered

    asyncio.run(main())


async def until_cut(reader: asyncio.StreamReader) -> None:
    """Read what the kernel still has, and check that the server has closed the connection."""
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(LARGE)


LARGE = 64 << 20
GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


def test_a_scan_whose_client_takes_nothing_is_cut_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    over, released = asyncio.Event(), asyncio.Event()

    async def rows() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield bytes(1 << 20)
        finally:
            over.set()

    memory = ProcessMemory()
    share = memory.scans.share()
    source = ScanSource(
        cast("Scan", SimpleNamespace(release=released.set)), JsonLines(lambda: 1, LoopTurns()), share, memory
    )
    stream = ScanStream(source, b"{}", rows(), headers=[], timeout_s=0.2)

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET)
        await over.wait()
        await until_cut(reader)

    with caplog.at_level("WARNING"):
        on_a_connection(scenario, app=stream)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert released.is_set()
    assert memory.scans.used_bytes == 0


def test_an_unread_response_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = asyncio.Event()
    monkeypatch.setattr(
        http_protocol.BoundedProtocol, "connection_lost", lambda self, error: lost.set() or LOST(self, error)
    )

    async def large(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"%d" % LARGE)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(LARGE)})

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET)
        await lost.wait()
        await until_cut(reader)

    on_a_connection(scenario, app=large, send_timeout_s=0.1)


def test_what_a_client_has_not_read_counts_until_it_is_read() -> None:
    """A slow client gets the whole response; what waits for it is counted meanwhile."""
    responses = ByteBudget(1 << 30)
    body = bytes(range(256)) * (LARGE >> 8)

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        while not responses.used_bytes:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0.01)
        assert responses.used_bytes <= 2 * PIECE_BYTES
        assert await reader.readexactly(len(body)) == body
        assert responses.used_bytes == 0

    on_a_connection(scenario, app=Response(200, body), unread=UnreadResponses(responses, MemoryAccount(1 << 30)))


def test_the_next_request_waits_until_the_response_before_it_is_read() -> None:
    """Its response would wait for the client, too, in memory that nothing counts."""
    asked = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal asked
        asked += 1
        headers = [(b"content-length", b"%d" % LARGE)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(LARGE)})

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(GET * 2)
        other, second = await asyncio.open_connection(*writer.get_extra_info("peername"))
        second.write(GET)
        await other.readuntil(b"\r\n\r\n")
        second.close()
        assert asked == 2, "one of each connection"
        for _ in range(2):
            await reader.readexactly(LARGE)
            await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(LARGE)
        assert asked == 4

    on_a_connection(scenario, app=app)


LOST = http_protocol.BoundedProtocol.connection_lost


def test_there_is_room_for_so_many_connections() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET)
        assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200 ")
        other, second = await asyncio.open_connection(*writer.get_extra_info("peername"))
        head, body = (await other.read()).split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in head
        assert json.loads(body)["retryable"]
        second.close()
        writer.write(GET)
        assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200 ")

    on_a_connection(scenario, connections_max=1)


def test_a_body_that_comes_in_drops_has_its_time() -> None:
    async def drop() -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def scenario() -> None:
        budget = BodyBudget(1 << 20, 1 << 20, BodyPace(10, 0.1))
        with pytest.raises(Problem, match=r"more than 0\.1 s") as refused:
            await budget.read(drop)
        assert refused.value.status == 408
        budget.take(1 << 20)  # nothing of it is kept

    asyncio.run(scenario())


@pytest.mark.parametrize("sent", [b"", GET, b"GET / HT"], ids=["idle", "answered", "unfinished"])
@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_a_closed_connection_is_freed_at_once(sent: bytes, is_reset: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when Python collects cycles, which is seldom: with TLS each has 50 KB."""
    made: list[weakref.ref[http_protocol.BoundedProtocol]] = []
    lost = asyncio.Event()

    def connection_lost(self: http_protocol.BoundedProtocol, error: Exception | None) -> None:
        made.append(weakref.ref(self))
        LOST(self, error)
        lost.set()

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        if sent == GET:
            await reader.readuntil(b"hi")
        if is_reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()
        await lost.wait()
        await asyncio.sleep(0)  # the caller of ``connection_lost`` has it
        assert [each() for each in made] == [None]

    monkeypatch.setattr(http_protocol.BoundedProtocol, "connection_lost", connection_lost)
    gc.collect()
    gc.disable()
    try:
        on_a_connection(scenario)
    finally:
        gc.enable()
