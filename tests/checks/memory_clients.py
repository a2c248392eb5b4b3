"""The clients of ``tests.checks.memory``: hostile ones that do not read, or send what is costly, and honest ones."""

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import Iterator

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

    async def write(self, url: str, *, clients: int, until_bytes: int, seconds: float) -> None:
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

        async with Client(url, attempts=1) as client:
            await asyncio.gather(*(one(client) for _ in range(clients)))

    async def missing(self, url: str) -> int:
        """Return how many acknowledged rows a server does not have."""
        missing = 0
        async with Client(url, attempts=8) as client:
            for rows in self.acknowledged:
                found = await client.get_many([key_of(row) for row in rows])
                missing += sum(value != value_of(row) for row, value in zip(rows, found, strict=True))
        return missing


async def read_for(url: str, writers: Writers, *, seconds: float) -> Counter[str]:
    """Read hot and cold rows, one by one and many at once; return the outcomes."""
    outcomes: Counter[str] = Counter()
    end_s = time.monotonic() + seconds
    async with Client(url, attempts=1) as client:
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


async def put_large_values(url: str) -> None:
    """Write the values that hostile clients ask for."""
    async with Client(url, attempts=8) as client:
        for key in LARGE_KEYS:
            await client.put(key, key * (LARGE_BYTES // len(key)))
        for key in MEDIUM_KEYS:
            await client.put(key, key * (MEDIUM_BYTES // len(key)))
        for key in HALF_KEYS:
            await client.put(key, key * (HALF_BYTES // len(key)))


@contextlib.contextmanager
def hostile(port: int, resp_port: int | None, *, factor: int, writes: bool) -> Iterator[None]:
    """Open clients that read nothing, and send what is costly; close them at the end.

    Args:
        port: of HTTP.
        resp_port: of Redis clients.
        factor: ten: 100 scans, 100 gets, 100 of many keys, 350 of Redis (MGET, GET, EXEC), 30
            bodies, 200 idle connections.
        writes: also send bodies of writes.
    """
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
    sent += [] if resp_port is None else [(resp_port, commands) for commands in redis] * (5 * factor)
    sent += [(port, b"")] * (20 * factor)
    if writes:
        body = msgpack.packb({"ops": [{}] * (6 << 20)})
        head = b"POST /v1/batch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/msgpack\r\n"
        head += b"content-length: %d\r\n\r\n"
        sent += [(port, head % len(body) + body)] * (3 * factor)
    with contextlib.ExitStack() as stack:
        for number, data in sent:
            client = stack.enter_context(socket.socket())
            client.setblocking(True)
            with contextlib.suppress(OSError):  # refused, or closed while it sends
                client.settimeout(10)
                client.connect(("127.0.0.1", number))
                client.sendall(data)
        yield


def _get_many(keys: tuple[bytes, ...]) -> bytes:
    """Return a request for the values of many keys."""
    body = msgpack.packb({"keys": keys})
    head = b"POST /v1/get-many HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/msgpack\r\n"
    return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)


def _command(*words: bytes) -> bytes:
    """Return a command as clients of Redis send it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
