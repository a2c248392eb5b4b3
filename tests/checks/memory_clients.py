"""The clients of ``tests.checks.memory``: hostile ones that do not read, or send what is costly, and honest ones."""

import asyncio
import contextlib
import random
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgpack

from shale.client import Client, Ops
from shale.errors import ShaleError

VALUE = b"%016d" * 62
"""Of a row: almost 1000 bytes that tell which row it is."""
ROWS_AT_ONCE = 500
LARGE_BYTES = 6 << 20
LARGE_KEYS = tuple(b"large%d" % number for number in range(4))
MEDIUM_BYTES = 1 << 20
"""The largest value that is read without memory of its own."""
MEDIUM_KEYS = tuple(b"medium%d" % number for number in range(30))
HALF_BYTES = 500_000
HALF_KEYS = tuple(b"half%d" % number for number in range(30))


def key_of(row: int) -> bytes:
    """Return the key of a row; neighbours in time are no neighbours in the order of keys."""
    return b"%016d" % (row * 7919 % 10**12)


def value_of(row: int) -> bytes:
    """Return the value of a row."""
    return VALUE % ((row,) * 62)


@dataclass(frozen=True)
class Server:
    """Where clients connect to.

    Args:
        port: of HTTP.
        resp_port: of Redis clients.
        ca_file: of the authority of its certificate; ``None``: without TLS.
    """

    port: int
    resp_port: int | None = None
    ca_file: Path | None = None

    def client(self, *, attempts: int) -> Client:
        """Return an honest client."""
        if self.ca_file is None:
            return Client(f"http://127.0.0.1:{self.port}", attempts=attempts)
        return Client(f"https://localhost:{self.port}", attempts=attempts, ca_file=str(self.ca_file))

    def send(self, connection: socket.socket, port: int, data: bytes) -> socket.socket:
        """Connect and send; return the connection to keep, which is another one with TLS.

        Raises:
            OSError: the server refuses the connection, or closes it.
        """
        connection.settimeout(10)
        connection.connect(("127.0.0.1", port))
        if self.ca_file is not None:
            context = ssl.create_default_context(cafile=str(self.ca_file))
            connection = context.wrap_socket(connection, server_hostname="localhost")
        connection.sendall(data)
        return connection


class Writers:
    """Honest clients that write as fast as they can, and remember what was acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: list[range] = []
        self.outcomes: Counter[str] = Counter()
        self._next = 0

    @property
    def rows(self) -> int:
        """How many rows were acknowledged."""
        return sum(map(len, self.acknowledged))

    async def write(self, server: Server, *, clients: int, until_bytes: int, seconds: float) -> None:
        """Write until so many bytes are acknowledged in all, or for so many seconds."""
        end_s = time.monotonic() + seconds

        async def one(client: Client) -> None:
            while self.rows * 1000 < until_bytes and time.monotonic() < end_s:
                rows = range(self._next, self._next + ROWS_AT_ONCE)
                self._next = rows.stop
                ops = Ops()
                for row in rows:
                    ops.put(key_of(row), value_of(row))
                try:
                    await client.batch(ops)
                except ShaleError as error:
                    self.outcomes[type(error).__name__] += 1
                    await asyncio.sleep(0.2)
                else:
                    self.outcomes["acknowledged"] += 1
                    self.acknowledged.append(rows)

        async with server.client(attempts=1) as client:
            await asyncio.gather(*(one(client) for _ in range(clients)))

    async def missing(self, server: Server) -> int:
        """Return how many acknowledged rows a server does not have."""
        missing = 0
        async with server.client(attempts=8) as client:
            for rows in self.acknowledged:
                found = await client.get_many([key_of(row) for row in rows])
                missing += sum(value != value_of(row) for row, value in zip(rows, found, strict=True))
        return missing


async def read_for(server: Server, writers: Writers, *, seconds: float) -> Counter[str]:
    """Read hot and cold rows, one by one and many at once; return the outcomes."""
    outcomes: Counter[str] = Counter()
    end_s = time.monotonic() + seconds
    async with server.client(attempts=1) as client:
        step = 0
        while time.monotonic() < end_s:
            step += 1
            rows = writers.acknowledged[step * 31 % len(writers.acknowledged)]
            wanted = [rows[step % len(rows)]] if step % 4 else list(rows)
            try:
                found = await client.get_many([key_of(row) for row in wanted])
            except ShaleError as error:
                outcomes[type(error).__name__] += 1
                await asyncio.sleep(0.1)
            else:
                wrong = sum(value != value_of(row) for row, value in zip(wanted, found, strict=True))
                outcomes["wrong" if wrong else "read"] += 1
    return outcomes


async def put_large_values(server: Server) -> None:
    """Write the values that hostile clients ask for."""
    async with server.client(attempts=8) as client:
        for key in LARGE_KEYS:
            await client.put(key, key * (LARGE_BYTES // len(key)))
        for key in MEDIUM_KEYS:
            await client.put(key, key * (MEDIUM_BYTES // len(key)))
        for key in HALF_KEYS:
            await client.put(key, key * (HALF_BYTES // len(key)))


@contextlib.contextmanager
def hostile(server: Server, *, factor: int, writes: bool, addresses: int) -> Iterator[None]:
    """Open clients that read nothing, and send what is costly; close them at the end.

    Args:
        server: theirs.
        factor: ten: 100 scans, 100 gets, 100 of many keys, 350 of Redis (MGET, GET, EXEC), 30
            bodies, 200 idle connections; those that the server refuses are fewer.
        writes: also send bodies of writes.
        addresses: how many they have: of one address the server takes half of all connections.
    """
    port = server.port
    scan = b"POST /v1/scan HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}"
    gets = [b"GET /v1/kv/%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % key for key in LARGE_KEYS]
    redis = [_command(b"MGET", *keys) for keys in (LARGE_KEYS, MEDIUM_KEYS, HALF_KEYS)]
    for keys in (MEDIUM_KEYS, HALF_KEYS):
        gets_of_each = b"".join([_command(b"GET", key) for key in keys])
        redis += [gets_of_each, _command(b"MULTI") + gets_of_each + _command(b"EXEC")]
    gets_of_many = [_get_many(keys) for keys in (MEDIUM_KEYS, HALF_KEYS)]
    sent: list[tuple[int, bytes]] = [(port, scan)] * (10 * factor)
    sent += [(port, gets[number % len(gets)]) for number in range(10 * factor)]
    sent += [(port, get_many) for get_many in gets_of_many] * (5 * factor)
    sent += [] if server.resp_port is None else [(server.resp_port, commands) for commands in redis] * (5 * factor)
    sent += [(port, b"")] * (20 * factor)
    if writes:
        body = msgpack.packb({"ops": [{}] * (6 << 20)})
        head = b"POST /v1/batch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/msgpack\r\n"
        head += b"content-length: %d\r\n\r\n"
        sent += [(port, head % len(body) + body)] * (3 * factor)
    random.Random(factor).shuffle(sent)  # the server refuses the last ones
    with contextlib.ExitStack() as stack:
        for each, (number, data) in enumerate(sent):
            connection = stack.enter_context(socket.socket())
            connection.bind((f"127.0.0.{2 + each % addresses}", 0))
            with contextlib.suppress(OSError):
                stack.enter_context(server.send(connection, number, data))
        yield


def _get_many(keys: tuple[bytes, ...]) -> bytes:
    """Return a request for the values of many keys."""
    body = msgpack.packb({"keys": keys})
    head = b"POST /v1/get-many HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/msgpack\r\n"
    return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)


def _command(*words: bytes) -> bytes:
    """Return a command as clients of Redis send it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
