"""``python -m tests.integration.overload.hostile PORT NAME...``: connections of these kinds to a writer, for ever."""

import asyncio
import contextlib
import os
import random
import socket
import sys
from collections.abc import Awaitable, Callable, Collection
from itertools import cycle

from tests.integration.daemons.raw_requests import CHUNKED, GET, HOST, PUT
from tests.integration.overload.place import AUTHORIZED, LARGE_KEY, raise_open_files
from tests.integration.writer.hostile_bodies import JSON, MSGPACK, items, packed_items

ADDRESSES = 50
"""Of the clients, none of them that of the honest ones: a writer limits the connections of an address."""
READY = "ready"
BODY_BYTES = 8 << 20
POST = b"POST /v1/batch HTTP/1.1\r\n" + HOST + AUTHORIZED
SCAN = b"POST /v1/scan HTTP/1.1\r\n" + HOST + AUTHORIZED + b"content-length: 2\r\n\r\n{}"
LARGE_GET = b"GET /v1/kv/" + LARGE_KEY + b" HTTP/1.1\r\n" + HOST + AUTHORIZED + b"\r\n"
WRONG_TOKEN = b"GET /v1/kv/a HTTP/1.1\r\n" + HOST + b"authorization: Bearer wrong\r\n\r\n"
NOISE = bytes(range(256)) * 16
DROP_S = 1.0
"""Between two bytes of a client that sends drop by drop."""
HEAVY_PAUSE_S = 2.0
LIGHT_PAUSE_S = 0.5
HANG_UP_S = 0.01

RANDOM = random.Random(1)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def pause(mean_s: float) -> None:
    """Wait for a time of its own, as clients that know nothing of each other do."""
    await asyncio.sleep(RANDOM.uniform(0.5, 1.5) * mean_s)


async def idle(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Send nothing."""
    await reader.read()


async def drops(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, start: bytes) -> None:
    """Send the start of a request, and then one byte after the other."""
    writer.write(start)
    while not reader.at_eof():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(DROP_S)


async def slow_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never end the headers."""
    await drops(reader, writer, b"GET / HTTP/1.1\r\nx-a: ")


async def slow_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never end a body."""
    await drops(reader, writer, PUT + AUTHORIZED + b"content-length: 1000000\r\n\r\n")


def body(content: bytes, media_type: str) -> Behaviour:
    """Return a client that sends a body which a decoder would blow up."""

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"content-type: %b\r\ncontent-length: %d\r\n\r\n" % (media_type.encode(), len(content))
        writer.write(POST + head)
        writer.write(content)
        await reader.readuntil(b"\r\n\r\n")
        await pause(HEAVY_PAUSE_S)

    return send


def unread(request: bytes) -> Behaviour:
    """Return a client that asks and does not read."""

    async def ask(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request)
        await asyncio.sleep(3600)

    return ask


def answered(request: bytes) -> Behaviour:
    """Return a client that asks, reads what comes at first, and hangs up."""

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request)
        await reader.read(1 << 16)
        await pause(LIGHT_PAUSE_S)

    return ask


async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a thousand requests and reset the connection."""
    writer.write(GET * 1000)
    await asyncio.sleep(HANG_UP_S)
    writer.transport.abort()


HOSTILE: dict[str, tuple[int, Behaviour]] = {
    "idle": (2000, idle),
    "slow heads": (100, slow_head),
    "slow bodies": (100, slow_body),
    "bodies of maps": (10, body(packed_items(b"\x80", BODY_BYTES), MSGPACK)),
    "bodies of lists": (10, body(items(b"[]", BODY_BYTES), JSON)),
    "unread scans": (60, unread(SCAN)),
    "unread values": (60, unread(LARGE_GET)),
    "noise": (40, answered(NOISE)),
    "bad chunks": (20, answered(CHUNKED + b"zz\r\n")),
    "hang-ups": (50, hang_up),
    "wrong tokens": (50, answered(WRONG_TOKEN)),
}
"""How many connections behave how: 2,000 idle and 500 hostile ones."""


async def repeat(port: int, address: str, behave: Behaviour, opened: Callable[[], None]) -> None:
    """Connect and behave, again and again; a connection that is lost is replaced."""
    is_first = True
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0), limit=1 << 20)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
            if is_first:
                opened()
                is_first = False
            try:
                await behave(reader, writer)
            finally:
                writer.transport.abort()
        await pause(LIGHT_PAUSE_S)


async def main(port: int, names: Collection[str]) -> None:
    """Open all connections, tell so, and go on until killed."""
    chosen = [each for name, each in HOSTILE.items() if name in names]
    waiting = sum(count for count, _ in chosen)
    all_opened = asyncio.Event()

    def opened() -> None:
        nonlocal waiting
        waiting -= 1
        if waiting == 0:
            all_opened.set()

    addresses = cycle([f"127.0.1.{number + 1}" for number in range(ADDRESSES)])
    async with asyncio.TaskGroup() as tasks:
        for count, behave in chosen:
            for _ in range(count):
                tasks.create_task(repeat(port, next(addresses), behave, opened))
                await asyncio.sleep(0)
        await all_opened.wait()
        print(READY, flush=True)


if __name__ == "__main__":
    # Clients on other machines take no processor of the writer.  A nice process keeps one for some milliseconds, too.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    raise_open_files()
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
