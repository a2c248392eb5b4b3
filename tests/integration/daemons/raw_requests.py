"""Bytes that a stranger sends to an HTTP port, and what has to come back."""

import re
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

HOST = b"host: localhost\r\n"
PUT = b"PUT /v1/kv/raw HTTP/1.1\r\n" + HOST + b"x-shale-durability: memory\r\n"
CHUNKED = PUT + b"transfer-encoding: chunked\r\n\r\n"
GET = b"GET /v1/kv/none HTTP/1.1\r\n" + HOST + b"\r\n"
LAST = b"GET /v1/kv/none HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"
UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
UPGRADE_CHUNKED = PUT + UPGRADE + b"transfer-encoding: chunked\r\n\r\n"
EXPECT = PUT + b"expect: 100-continue\r\ncontent-length: 3\r\n\r\n"
TIMEOUT_S = 60.0


class Case(NamedTuple):
    """What is sent, the statuses of all answers until the connection is closed, and how many debug lines are logged.

    There are never lines of another level.
    """

    name: str
    sent: bytes | Sequence[bytes]
    statuses: Sequence[int]
    debug_lines: int = 0


def refused(name: str, sent: bytes | Sequence[bytes], *statuses: int) -> Case:
    """A case of one malformed request, after others perhaps: it is answered, and one line says why."""
    return Case(name, sent, statuses, 1)


LENGTHS = (
    (b"3", b"4"),
    (b"3", b"3"),
    (b"+3",),
    (b"3 3",),
    (b"3, 3",),
    (b"-1",),
    (b"9" * 23,),
)
"""Values of ``Content-Length`` of requests that proxies and servers may cut at different places."""


def _with_lengths(lengths: Sequence[bytes]) -> bytes:
    return PUT + b"".join(b"content-length: %b\r\n" % length for length in lengths) + b"\r\nabcd"


CASES = (
    # What a body is: smuggled requests, codings, chunks.
    refused("a length and a coding", PUT + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    *(refused(f"lengths {lengths}", _with_lengths(lengths), 400) for lengths in LENGTHS),
    refused("an unknown coding", PUT + b"transfer-encoding: gzip\r\n\r\nabc", 501),
    refused("a second coding", PUT + b"transfer-encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 501),
    refused("an identity coding", PUT + b"transfer-encoding: identity\r\ncontent-length: 3\r\n\r\nabc", 501),
    refused("no chunk size", CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n", 400),
    refused("a chunk size beyond 64 bits", CHUNKED + b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n", 400),
    refused("a bad chunk after a good one", [CHUNKED + b"3\r\nabc\r\n", b"zz\r\n"], 400),
    refused("a chunk that is too long", CHUNKED + b"2\r\nabc\r\n0\r\n\r\n", 400),
    refused("endless trailers", CHUNKED + b"3\r\nabc\r\n0\r\n" + b"x-a: b\r\n" * 50_000, 431),
    Case("a trailer", CHUNKED + b"3\r\nabc\r\n0\r\nx-a: b\r\n\r\n" + LAST, [204, 404]),
    Case("a long chunk extension", CHUNKED + b"3;" + b"a" * 300_000 + b"\r\nabc\r\n0\r\n\r\n" + LAST, [204, 404]),
    # The head.
    refused("a blank before the colon", PUT + b"content-length : 3\r\n\r\nabc", 400),
    refused("a folded header", PUT + b"x-a: b\r\n c\r\ncontent-length: 0\r\n\r\n", 400),
    refused("lines without a carriage return", b"GET /v1/kv/none HTTP/1.1\nhost: localhost\n\n", 400),
    refused("a NUL in a value", PUT + b"x-a: \0\r\n\r\n", 400),
    refused("a NUL in a name", PUT + b"x\0a: b\r\n\r\n", 400),
    refused("many headers", b"GET /v1/kv/none HTTP/1.1\r\n" + b"a:\r\n" * 30_000 + b"\r\n", 431),
    refused("long headers", b"GET /v1/kv/none HTTP/1.1\r\n" + (b"a: " + b"b" * 50_000 + b"\r\n") * 20, 431),
    refused("no host", b"GET /v1/kv/none HTTP/1.1\r\n\r\n", 400),
    refused("two hosts", b"GET /v1/kv/none HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
    refused("no host after a request", GET + b"GET /v1/kv/none HTTP/1.1\r\n\r\n", 404, 400),
    # The request line.
    refused("a long target", b"GET /v1/kv/" + b"k" * 100_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    refused("a target beyond ASCII", "GET /v1/kv/ü HTTP/1.1\r\n".encode() + HOST + b"\r\n", 400),
    refused("a target with a blank", b"GET /v1/kv/a b HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    refused("a CONNECT", b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    Case("a CONNECT to a path", b"CONNECT / HTTP/1.1\r\n" + HOST + b"\r\n" + LAST, [404, 404]),
    Case("an absolute target", b"GET http://localhost/v1/kv/none HTTP/1.1\r\n" + HOST + b"\r\n" + LAST, [404, 404]),
    Case("a percent sign alone", b"GET /v1/kv/%zz HTTP/1.1\r\n" + HOST + b"\r\n" + LAST, [400, 404]),
    Case("all of the server", b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n" + LAST, [404, 404]),
    Case("HTTP/1.0", b"GET /v1/kv/none HTTP/1.0\r\n\r\n", [404]),
    refused("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    refused("HTTP/3", b"GET / HTTP/3.0\r\n\r\n", 400),
    refused("TLS", bytes.fromhex("16030100c8010000c40303") + bytes(200), 400),
    refused("noise", bytes(range(256)) * 10, 400),
    # One after the other.
    Case("a body that is asked for", [EXPECT, b"abc", LAST], [100, 204, 404]),
    Case("another protocol", PUT + UPGRADE + b"content-length: 3\r\n\r\nabc" + LAST, [204, 404]),
    Case("another protocol in chunks", UPGRADE_CHUNKED + b"3\r\nabc\r\n0\r\n\r\n" + LAST, [204, 404]),
    Case("another protocol without a body", GET[:-2] + UPGRADE + b"\r\n" + LAST, [404, 404]),
    refused("another protocol with a bad body", UPGRADE_CHUNKED + b"zz\r\n", 400),
    Case("10,000 requests", GET * 9_999 + LAST, [404] * 10_000),
    Case("writes and reads", (PUT + b"content-length: 3\r\n\r\nabc" + GET) * 500 + LAST, [204, 404] * 500 + [404]),
    refused("noise after requests", GET * 3 + b"\0", 404, 404, 404, 400),
    refused("noise after many requests", GET * 300 + b"\0", *[404] * 300, 400),
    refused("noise after a body", PUT + b"content-length: 3\r\n\r\nabc\0", 204, 400),
    Case("nothing after a part", [b"GET /v1/kv/none HTT"], []),
    Case("nothing after a part of a body", [PUT + b"content-length: 3\r\n\r\nab"], []),
)  # fmt: skip


def answers(port: int, sent: bytes | Sequence[bytes]) -> list[int]:
    """Send bytes, and return the statuses of all answers until the server closes the connection.

    A list of one part is followed by the end of what this client sends.
    """
    parts, ends = ([sent], False) if isinstance(sent, bytes) else (sent, len(sent) == 1)
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for part in parts:
                connection.sendall(part)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(1 << 16):
                received += more
        except (BrokenPipeError, ConnectionResetError):
            received += _rest(connection)
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]


def _rest(connection: socket.socket) -> bytes:
    """Return what had arrived when sending failed."""
    received = b""
    try:
        while more := connection.recv(1 << 16):
            received += more
    except ConnectionResetError:
        pass
    return received


def hang_up(port: int, sent: bytes, pause_s: float) -> None:
    """Send bytes, wait, and reset the connection without reading."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        connection.setblocking(False)
        connection.send(sent)
        time.sleep(pause_s)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
