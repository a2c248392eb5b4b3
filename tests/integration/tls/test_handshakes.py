"""Connections count in the limits of a port from their accept to their end, whatever clients leave out of TLS."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

import shale
from shale.core.address_limits import ConnectionCounts
from shale.env import Env
from shale.resp.options import RespOptions
from shale.resp.server import serve_resp
from shale.service.config.access.tls_section import TlsSection
from shale.service.http.server import ConnectionLimits, open_socket, serve_app
from shale.service.process import PortServices
from shale.service.tls.certificates import ServerCertificate
from shale.service.tls.listener import REFUSALS_MAX
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.certificates import Authority

LIMIT = 4
SILENT = LIMIT + REFUSALS_MAX + 5
CLIENTS = 100
"""Their first bytes arrive at any moment of the accept."""
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
PING = {"http": b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "resp": b"PING\r\n"}
LAST = {"http": PING["http"], "resp": b"QUIT\r\n"}
PONG = {"http": b"HTTP/1.1 204", "resp": b"+PONG"}


async def _app(scope: object, receive: object, send: Callable[..., "asyncio.Future[None]"]) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def _port(kind: str, certificate: ServerCertificate, per_address: int) -> AsyncIterator[int]:
    listener = open_socket("127.0.0.1", 0, setting="port")
    number = listener.getsockname()[1]
    if kind == "http":
        limits = ConnectionLimits(connections_max=LIMIT, per_address=ConnectionCounts(per_address))
        async with serve_app(_app, listener, request_timeout_s=5, limits=limits, certificate=certificate):  # type: ignore[arg-type]
            yield number
        return
    options = RespOptions(max_connections=LIMIT, max_connections_per_address=per_address)
    async with (
        shale.Db.open("db", store=MemoryStore()) as db,
        serve_resp(
            db, listener, Env.system(), Metrics(db="db"), options, services=PortServices(certificate=certificate)
        ),
    ):
        yield number


async def _is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


async def _answer(kind: str, port: int, context: ssl.SSLContext, address: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost", local_addr=(address, 0)
    )
    writer.write(PING[kind])
    found = await reader.readuntil(b"\r\n")
    writer.close()
    return found


async def _answer_or_nothing(kind: str, port: int, context: ssl.SSLContext) -> bytes:
    try:
        return await _answer(kind, port, context)
    except (OSError, asyncio.IncompleteReadError):
        return b""


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("kind", ["http", "resp"])
@pytest.mark.parametrize("per_address", [1000, 3])
def test_silent_clients_count_from_their_accept_on(loop: str, kind: str, per_address: int, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    section = TlsSection(cert_file=str(cert), key_file=str(key), handshake_timeout=60.0)
    certificate = ServerCertificate(section, ssl.CERT_NONE)
    context = authority.client()
    most = min(per_address, LIMIT + REFUSALS_MAX)

    async def scenario() -> None:
        async with asyncio.timeout(60), _port(kind, certificate, per_address) as port:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(SILENT)]
            ends = [asyncio.create_task(_is_closed(reader)) for reader, _ in silent]
            refused, held = await asyncio.wait(ends[most:], timeout=30)
            assert (len(refused), len(held)) == (SILENT - most, 0), "connections beyond the limit end at once"
            assert not any(end.done() for end in ends[:most]), "those within it have the time of a handshake"
            for _, writer in silent:
                writer.close()
            found = b""
            while not found.startswith(PONG[kind]):  # until the server has seen the ends of the others
                found = await _answer_or_nothing(kind, port, context)
            await asyncio.gather(*ends)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(scenario())


def _ended_session(kind: str, port: int, context: ssl.SSLContext) -> ssl.SSLSocket | None:
    """Return a connection that the server has ended, whose client does not answer; ``None`` if it is refused."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    try:
        client = context.wrap_socket(plain, server_hostname="localhost")
        client.sendall(LAST[kind])
        found = client.recv(100)
    except OSError:
        plain.close()
        return None
    if found:
        return client
    client.close()
    return None


def _is_established(client: socket.socket) -> bool:
    """Return whether the server has not closed the connection."""
    return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\x01"


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("kind", ["http", "resp"])
@pytest.mark.parametrize("per_address", [1000, 3])
def test_connections_count_until_their_clients_agree_to_the_end(
    loop: str, kind: str, per_address: int, tmp_path: Path
) -> None:
    """TLS waits half a minute for the client's half of the end, and keeps all buffers."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    certificate = ServerCertificate(TlsSection(cert_file=str(cert), key_file=str(key)), ssl.CERT_NONE)
    context = authority.client()

    async def scenario() -> None:
        async with asyncio.timeout(60), _port(kind, certificate, per_address) as port:
            attempts = [await asyncio.to_thread(_ended_session, kind, port, context) for _ in range(SILENT)]
            clients = [each for each in attempts if each is not None]
            assert len(clients) >= LIMIT
            held = [client for client in clients if _is_established(client)]
            assert len(held) <= min(per_address, LIMIT) + REFUSALS_MAX
            if per_address < LIMIT:
                assert (await _answer(kind, port, context, "127.0.0.2")).startswith(PONG[kind]), "others have the rest"
            for client in clients:
                client.close()
            found = b""
            while not found.startswith(PONG[kind]):
                found = await _answer_or_nothing(kind, port, context)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(scenario())
