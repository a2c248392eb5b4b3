"""Answers that are not of Shale: a proxy, a login page, or a connection that breaks in the body of an error."""

from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import msgpack
import pytest

from shale.client import Client, Compare, Ops
from shale.errors import UnavailableError

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def scan(client: Client) -> list[object]:
    return [row async for row in client.scan()]


async def snapshot(client: Client) -> None:
    async with client.snapshot():
        pass


CALLS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "get": lambda client: client.get(b"k"),
    "get_many": lambda client: client.get_many([b"k"]),
    "put": lambda client: client.put(b"k", b"v"),
    "batch": lambda client: client.batch(Ops().put(b"k", b"v")),
    "txn": lambda client: client.txn([Compare.absent(b"k")]),
    "scan": scan,
    "scan_arrow": lambda client: client.scan_arrow(),
    "snapshot": snapshot,
}
BODIES = {
    "a page": b"<html>log in</html>",
    "nothing": b"",
    "no object": msgpack.packb([1]),
    "no fields": msgpack.packb({}),
    "too few values": msgpack.packb({"values": [], "seq": "x", "id": "s", "rows": None}),
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("call", CALLS)
async def test_an_answer_that_is_not_of_shale_is_no_answer(call: str, body: str) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=BODIES[body]))
    async with Client("http://server", transport=transport, attempts=1) as client:
        with pytest.raises(UnavailableError, match="http://server: "):
            await CALLS[call](client)


class Whole(httpx.AsyncByteStream):
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._data


@pytest.mark.parametrize("row", [b"\x93\x01\x02\x03", b"\xc0", b"\xc1"])
async def test_a_row_of_other_types_ends_a_scan(row: bytes) -> None:
    headers = {"x-shale-resume": "r"}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, stream=Whole(row)))
    async with Client("http://server", transport=transport, attempts=1) as client:
        with pytest.raises(UnavailableError, match="not one of Shale"):
            await scan(client)


class Breaks(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b'{"detail": "bus'
        raise httpx.ReadError("the connection broke")


@pytest.mark.parametrize("status", [404, 503])
async def test_a_scan_whose_refusal_breaks_off_got_no_answer(status: int) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, stream=Breaks()))
    async with Client("http://server", transport=transport, attempts=1) as client:
        with pytest.raises(UnavailableError, match="ReadError"):
            await scan(client)


class Unread(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        pytest.fail("the body of an encoded answer is read")
        yield b""


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("call", CALLS)
async def test_a_compressed_answer_is_refused_unread(call: str, status: int) -> None:
    """It was not asked for, and a megabyte of it can stand for gigabytes."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["accept-encoding"])
        return httpx.Response(status, headers={"content-encoding": "GZip", "x-shale-resume": "r"}, stream=Unread())

    async with Client("http://server", transport=httpx.MockTransport(answer), attempts=1) as client:
        with pytest.raises(UnavailableError, match=r"http://server: .* content encoding 'GZip'"):
            await CALLS[call](client)
    assert asked == ["identity"]
