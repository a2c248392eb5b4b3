"""Writes to real connections whose clients leave a little of them unread."""

import asyncio
import contextlib
import socket
import ssl
import struct
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from shale.api.messages import Response
from shale.concurrency.byte_budget import ByteBudget
from shale.core.memory_account import MemoryAccount
from shale.service.config.access.tls_section import TlsSection
from shale.service.http.server import ConnectionLimits, open_socket, serve_app
from shale.service.memory.counted_transport import BELOW_TLS_BYTES, TLS_PIECE_BYTES, CountedTransport
from shale.service.memory.unread_responses import UnreadResponses
from shale.service.tls.certificates import ServerCertificate
from tests.certificates import Authority

MIB = 1 << 20
KERNEL_BYTES = 64 << 10
"""The kernel doubles what is asked for."""
CLIENTS = 30
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Sender(asyncio.Protocol):
    """A connection that writes as it is told."""

    def __init__(self, responses: UnreadResponses) -> None:
        self._responses = responses
        self.made, self.ended = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        self.transport = CountedTransport(cast("asyncio.Transport", transport), self._responses.share(transport.abort))
        self.made.set()

    def pause_writing(self) -> None:
        self.transport.paused()

    def resume_writing(self) -> None:
        self.transport.resumed()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport.lost()
        self.ended.set()


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server and of its clients."""
    authority = Authority(folder)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*authority.issue("server"))
    return server, authority.client()


def certified(folder: Path) -> tuple[Authority, ServerCertificate]:
    """Return an authority and a certificate of a port that it has signed."""
    authority = Authority(folder)
    cert, key = authority.issue("server")
    return authority, ServerCertificate(TlsSection(cert_file=str(cert), key_file=str(key)), ssl.CERT_NONE)


def run(loop: str, main: Coroutine[Any, Any, None]) -> None:
    """Run a scenario on one of the loops."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(main, 60))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_a_write_counts_as_a_whole_until_its_last_byte_is_sent(loop: str, is_tls: bool, tmp_path: Path) -> None:
    """Then another one counts, too."""
    server_context = client_context = None
    if is_tls:
        server_context, client_context = contexts(tmp_path)

    async def main() -> None:
        budget = ByteBudget(1 << 30)
        sender = Sender(UnreadResponses(budget, MemoryAccount(1 << 30)))
        running, problems = asyncio.get_running_loop(), []
        running.set_exception_handler(lambda _, context: problems.append(context))
        server = await running.create_server(lambda: sender, "127.0.0.1", 0, ssl=server_context)
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        sock.setblocking(False)
        await running.sock_connect(sock, server.sockets[0].getsockname())
        name = "localhost" if is_tls else None
        reader, writer = await asyncio.open_connection(sock=sock, ssl=client_context, server_hostname=name, limit=1024)
        await sender.made.wait()
        counted = MIB + is_tls * BELOW_TLS_BYTES
        body = bytes(range(256)) * (MIB >> 8)
        references = sys.getrefcount(body)
        for _ in range(2):
            sender.transport.write(body)
            assert budget.used_bytes == counted
            received = 0
            while budget.used_bytes:
                assert budget.used_bytes == counted, "a part of what the transport keeps"
                received += len(await reader.read(1024))
            assert sender.transport.get_write_buffer_size() == 0
            assert received >= MIB - 4 * KERNEL_BYTES - is_tls * (BELOW_TLS_BYTES + TLS_PIECE_BYTES)
            await reader.readexactly(MIB - received)
            assert sys.getrefcount(body) == references, "an idle connection keeps what it has sent"
        sender.transport.write(body)
        sender.transport.close()
        assert sender.transport.is_closing()
        assert await reader.read(-1) == body, "all that was written before the end"
        assert budget.used_bytes == 0
        assert problems == []
        writer.close()
        await sender.ended.wait()
        server.close()

    run(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_the_end_of_what_is_written_is_no_error_if_the_peer_has_reset_the_connection(loop: str) -> None:
    """The kernel knows before the loop does."""

    async def main() -> None:
        sender = Sender(UnreadResponses(ByteBudget(1 << 30), MemoryAccount(1 << 30)))
        running = asyncio.get_running_loop()
        server = await running.create_server(lambda: sender, "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname())
        await sender.made.wait()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        sender.transport.write_eof()
        await sender.ended.wait()
        server.close()

    run(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_what_is_sent_at_once_never_counts(loop: str, is_tls: bool, tmp_path: Path) -> None:
    """Where memory is short, the client of a response that the kernel takes would be dropped."""
    server_context, client_context = contexts(tmp_path)

    async def main() -> None:
        account = MemoryAccount(1 << 30)
        responses = UnreadResponses(ByteBudget(KERNEL_BYTES), account)
        sender = Sender(responses)
        responses.share(lambda: None).count(1000)
        running = asyncio.get_running_loop()
        server = await running.create_server(lambda: sender, "127.0.0.1", 0, ssl=server_context if is_tls else None)
        address = server.sockets[0].getsockname()
        context, name = (client_context, "localhost") if is_tls else (None, None)
        reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=name)
        await sender.made.wait()
        for _ in range(5):
            sender.transport.write(bytes(KERNEL_BYTES))
            await reader.readexactly(KERNEL_BYTES)
        assert account.dropped_connections == 0
        writer.close()
        await sender.ended.wait()
        server.close()

    run(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_clients_that_read_nothing_over_tls_are_dropped(loop: str, tmp_path: Path) -> None:
    """TLS took a response of a mebibyte as a whole, paused nothing, and nothing was counted."""
    authority, certificate = certified(tmp_path)
    budget, account = ByteBudget(8 * MIB), MemoryAccount(1 << 30)

    async def connect(port: int) -> asyncio.StreamWriter:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        context = authority.client()
        _, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname="localhost", limit=1024)
        return writer

    async def main() -> None:
        listener = open_socket("127.0.0.1", 0, setting="http.port")
        port = listener.getsockname()[1]
        limits = ConnectionLimits(unread=UnreadResponses(budget, account))
        response = Response(200, bytes(MIB))
        async with serve_app(response, listener, request_timeout_s=5, limits=limits, certificate=certificate):
            clients = [await connect(port) for _ in range(CLIENTS)]
            for client in clients:
                client.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            while account.dropped_connections < CLIENTS - 7:  # noqa: ASYNC110 - nothing notifies
                await asyncio.sleep(0.01)
            assert budget.used_bytes == 7 * (MIB + BELOW_TLS_BYTES)
            for client in clients:
                client.transport.abort()

    run(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_with_tls_that_sends_no_more_gets_the_rest(loop: str, tmp_path: Path) -> None:
    """Both loops drop what is written after the end of what a client sends."""
    authority, certificate = certified(tmp_path)

    async def main() -> None:
        listener = open_socket("127.0.0.1", 0, setting="http.port")
        address = listener.getsockname()
        limits = ConnectionLimits(unread=UnreadResponses(ByteBudget(1 << 30), MemoryAccount(1 << 30)))
        async with serve_app(
            Response(200, bytes(MIB)), listener, request_timeout_s=5, limits=limits, certificate=certificate
        ):
            assert await asyncio.to_thread(read_after_the_end, address, authority.client()) > MIB

    run(loop, main())


def read_after_the_end(address: tuple[str, int], context: ssl.SSLContext) -> int:
    """Ask for a response, end the sending side of TLS, and return how many bytes arrive."""
    received, incoming, outgoing = 0, ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        sock.connect(address)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(KERNEL_BYTES))
        tls.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        sock.sendall(outgoing.read())
        sock.settimeout(None)
        sock.recv(4096, socket.MSG_PEEK | socket.MSG_WAITALL)  # the response has begun, after the tickets of TLS
        with contextlib.suppress(ssl.SSLError):
            tls.unwrap()
        sock.sendall(outgoing.read())
        while True:
            try:
                data = tls.read(KERNEL_BYTES)
            except ssl.SSLWantReadError:
                more = sock.recv(KERNEL_BYTES)
                if not more:
                    return received
                incoming.write(more)
            except ssl.SSLError:
                return received
            else:
                if not data:
                    return received
                received += len(data)
