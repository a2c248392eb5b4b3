"""A port whose connections begin with a handshake: the ends of the port and of what it needs."""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from shale.core.address_limits import ConnectionCounts
from shale.service.config.access.tls_section import TlsSection
from shale.service.http.server import open_socket
from shale.service.tls import listener as module
from shale.service.tls.certificates import ServerCertificate
from shale.service.tls.listener import HandshakeLimits, TlsListener
from tests.certificates import Authority

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
HELLO = b"hello"


class Greeting(asyncio.Protocol):
    """Greets, and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport.get_extra_info("peername"), tuple)
        transport.write(HELLO)  # type: ignore[attr-defined]
        transport.close()


class FailingSocket(socket.socket):
    """A listener whose first accept fails: no file descriptor is free, or the connection is lost already."""

    failures = 1
    number = errno.EMFILE

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(self.number, os.strerror(self.number))
        return super().accept()


def ran(loop: str, scenario: Callable[[], "asyncio.Future[None]"]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(bounded())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def certificate(authority: Authority) -> ServerCertificate:
    cert, key = authority.issue("server")
    return ServerCertificate(TlsSection(cert_file=str(cert), key_file=str(key)), ssl.CERT_NONE)


async def greeting(port: int, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    found = await reader.read()
    writer.close()
    return found


@pytest.mark.parametrize("loop", LOOPS)
def test_a_port_that_closes_ends_its_handshakes(loop: str, certificate: ServerCertificate) -> None:
    async def scenario() -> None:
        bound = open_socket("127.0.0.1", 0, setting="port")
        port = bound.getsockname()[1]
        listener = TlsListener(bound, Greeting, certificate, HandshakeLimits(connections_max=1))
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(module.REFUSALS_MAX + 2)]
        refused, its_writer = silent.pop()
        assert await refused.read() == b"", "one more than the limit is closed at once"
        its_writer.close()
        listener.close()
        listener.close()
        await listener.wait_closed()
        for reader, writer in silent:
            assert await reader.read() == b""
            writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    ran(loop, scenario)  # type: ignore[arg-type]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_process_without_free_descriptors_accepts_later(
    loop: str, authority: Authority, certificate: ServerCertificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)

    async def scenario() -> None:
        bound = FailingSocket(fileno=open_socket("127.0.0.1", 0, setting="port").detach())
        port = bound.getsockname()[1]
        listener = TlsListener(bound, Greeting, certificate, HandshakeLimits())
        assert await greeting(port, authority.client()) == HELLO
        assert bound.failures == 0
        listener.close()
        await listener.wait_closed()

    ran(loop, scenario)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [errno.EPROTO, errno.ENETDOWN, errno.EPERM])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_that_is_lost_before_its_accept_is_passed_over(
    loop: str, number: int, authority: Authority, certificate: ServerCertificate
) -> None:
    async def scenario() -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        bound = FailingSocket(fileno=open_socket("127.0.0.1", 0, setting="port").detach())
        bound.number = number
        port = bound.getsockname()[1]
        listener = TlsListener(bound, Greeting, certificate, HandshakeLimits())
        assert await greeting(port, authority.client()) == HELLO
        assert (bound.failures, reported) == (0, [])
        listener.close()
        await listener.wait_closed()

    ran(loop, scenario)  # type: ignore[arg-type]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_failed_handshake_frees_its_place(loop: str, authority: Authority, certificate: ServerCertificate) -> None:
    async def scenario() -> None:
        bound = open_socket("127.0.0.1", 0, setting="port")
        port = bound.getsockname()[1]
        listener = TlsListener(bound, Greeting, certificate, HandshakeLimits(per_address=ConnectionCounts(1)))
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.read()
            writer.close()
            assert await greeting(port, authority.client()) == HELLO
        listener.close()
        await listener.wait_closed()

    ran(loop, scenario)  # type: ignore[arg-type]
