"""The client against the real interface: values, errors, lost responses and interrupted scans."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

import shale
from shale.client import Client, Compare, CompareFailed, Ops, SnapshotExpired
from shale.errors import InvalidRequestError, MergeOperatorMissing, UnavailableError
from shale.types import Row
from tests.unit.api.harness import Port, open_port

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Wire(httpx.AsyncBaseTransport):
    """A transport to a port; ``weather`` sets the faults of the next requests, after which all succeed.

    ``lost``: it arrives, its answer does not.  ``busy``: 503 in between.  A number: the answer is cut there.
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self.weather: list[str | int] = []
        self.sent: list[httpx.Request] = []
        self.watched: Watched | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        weather = self.weather.pop(0) if self.weather else "fine"
        if weather == "busy":
            return httpx.Response(503, headers={"Retry-After": "0"}, content=b"{}")
        if weather == "refused":
            raise httpx.ConnectError("connection refused")
        answer = await self._port.client._transport.handle_async_request(request)
        if weather == "lost":
            await answer.aread()
            raise httpx.ReadError("cut")
        if weather == "watched":
            content = await answer.aread()
            self.watched = Watched([content[:1000], content[1000:]])
            return httpx.Response(answer.status_code, headers=answer.headers, stream=self.watched)
        if isinstance(weather, int):
            content = await answer.aread()
            return httpx.Response(answer.status_code, headers=answer.headers, stream=Torn(content[:weather]))
        return answer


class Watched(httpx.AsyncByteStream):
    """A response in pieces that records whether the client has closed it."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece

    async def aclose(self) -> None:
        self.is_closed = True


class Torn(httpx.AsyncByteStream):
    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._content
        raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[Client, Port, Wire]]:
    async with open_port(**options) as port:
        wire = Wire(port)
        async with Client("http://port", transport=wire, attempts=3) as client:
            yield client, port, wire


async def test_rows_come_back_as_they_were_written() -> None:
    async with connected() as (client, port, _):
        key = b"a/b %\x00\xff"
        written = await client.put(key, b"\x00value", ttl="1h")
        row = await client.get_row(key)
        assert row == await port.db.get_row(key)
        assert row is not None
        assert (row.seq, row.create_ts) == (written.seq, written.create_ts)
        assert row.expire_ts == (row.create_ts or 0) + 3_600_000
        assert await client.get(key) == b"\x00value"
        assert await client.get_many([b"no", key]) == [None, b"\x00value"]
        await client.delete(key)
        assert await client.get(key) is None
        assert await client.get_row(key) is None


async def test_batches_and_transactions() -> None:
    async with connected(merge_operator="concatenate") as (client, port, _):
        moment = datetime(2100, 1, 1, tzinfo=UTC)
        ops = Ops().put(b"a", b"1", ttl=shale.NEVER).put(b"b", b"2", expire_at=moment).merge(b"m", b"x").delete(b"c")
        written = await client.batch(ops)
        assert (written.rows, written.seq) == (4, 1)
        row = await port.db.get_row(b"b")
        assert row is not None
        assert row.expire_ts == 4_102_444_800_000
        await client.merge(b"m", b"y")
        assert await client.get(b"m") == b"xy"
        done = await client.txn([Compare.seq(b"a", 1), Compare.absent(b"c")], Ops().put(b"c", b"3"))
        assert await client.get(b"c") == b"3"
        assert (await client.txn([Compare.value(b"c", b"3")])).seq == done.seq
        with pytest.raises(CompareFailed) as refused:
            await client.txn(
                [Compare.present(b"a"), Compare.absent(b"c"), Compare.value(b"a", b"9")], Ops().delete(b"a")
            )
        assert refused.value.failed == (1, 2)


async def test_errors_are_the_librarys() -> None:
    async with connected() as (client, _, _):
        for key in (b"", b"k" * 65_536):
            with pytest.raises(InvalidRequestError, match=f"key of {len(key)} bytes"):
                await client.put(key, b"")
        with pytest.raises(InvalidRequestError, match="65536"):
            await client.batch(Ops().put(b"k" * 65_536, b""))
        with pytest.raises(InvalidRequestError, match="merge operator"):
            await client.merge(b"a", b"1")
        with pytest.raises(InvalidRequestError):
            await client.put(b"a", b"1", ttl="1h", expire_at=5)
    assert issubclass(MergeOperatorMissing, InvalidRequestError)


@pytest.mark.parametrize("key", [b".", b"..", b"...", b"a/../b", b"../x", b"//", b"?a#b"])
async def test_keys_that_look_like_ways_are_keys(key: bytes) -> None:
    async with connected() as (client, port, _):
        await client.put(key, b"v")
        assert await port.db.get(key) == b"v"
        assert await client.get(key) == b"v"
        await client.delete(key)
        assert await port.db.get(key) is None


async def test_a_scan_that_is_left_lets_go_of_its_connection_at_once() -> None:
    async with connected() as (client, port, wire):
        for number in range(200):
            await port.db.put(b"k%03d" % number, b"v" * 50)
        wire.weather = ["watched"]
        rows = client.scan()
        async for row in rows:
            assert row.key == b"k000"
            break
        await rows.aclose()
        assert wire.watched is not None
        assert wire.watched.is_closed


@pytest.mark.parametrize("weather", [["lost"], ["busy", "lost", "fine"], ["refused", "busy"]])
async def test_a_write_whose_answer_was_lost_happens_once(weather: list[str | int]) -> None:
    async with connected(merge_operator="concatenate") as (client, port, wire):
        wire.weather = weather
        await client.merge(b"m", b"x")
        assert await port.db.get(b"m") == b"x"
        assert len({request.headers["idempotency-key"] for request in wire.sent}) == 1
        await client.merge(b"m", b"x")
        assert await port.db.get(b"m") == b"xx"


async def test_what_goes_on_for_too_long_is_an_error() -> None:
    async with connected() as (client, port, wire):
        wire.weather = ["busy"] * 3
        with pytest.raises(UnavailableError):
            await client.put(b"a", b"1")
        wire.weather = ["refused"] * 3
        with pytest.raises(UnavailableError, match="connection refused"):
            await client.get(b"a")
        assert len(wire.sent) == 6
        assert port.db.status.last_seq == 0


async def fill(port: Port, count: int = 200) -> list[Row]:
    for number in range(count):
        await port.db.put(b"k%04d" % number, b"v%d" % number)
    return [row async for row in port.db.scan()]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [None, 150])
async def test_a_cut_scan_resumes_after_its_last_row(reverse: bool, limit: int | None) -> None:
    async with connected() as (client, port, wire):
        rows = await fill(port)
        expected = (rows[::-1] if reverse else rows)[:limit]
        wire.weather = [1000, 0, "busy", 2500, 31, 700]
        assert [row async for row in client.scan(reverse=reverse, limit=limit)] == expected


async def test_a_cut_scan_does_not_mix_two_states() -> None:
    async with connected() as (client, port, wire):
        rows = await fill(port)
        wire.weather = [1000]
        seen = []
        scan = client.scan()
        seen.append(await anext(scan))
        await port.db.put(b"k0199+", b"new")

        async def rest() -> None:
            async for row in scan:
                seen.append(row)

        with pytest.raises(SnapshotExpired, match="snapshot"):
            await rest()
        assert seen == rows[: len(seen)]

        rows = [row async for row in port.db.scan()]
        async with client.snapshot() as snapshot:
            wire.weather = [1000]
            seen = []
            async for row in client.scan(snapshot=snapshot):
                await port.db.put(b"k9", b"newer")
                seen.append(row)
        assert seen == rows


async def test_a_scan_that_never_gets_on_is_an_error() -> None:
    async with connected() as (client, port, wire):
        await fill(port)
        wire.weather = [0] * 3
        with pytest.raises(UnavailableError):
            [row async for row in client.scan()]


async def test_snapshots() -> None:
    async with connected() as (client, port, _):
        await client.put(b"a", b"old")
        async with client.snapshot(lifetime="5s") as snapshot:
            await client.put(b"a", b"new")
            assert await client.get(b"a", snapshot=snapshot) == b"old"
            assert await client.get(b"b", snapshot=snapshot) is None
            assert await client.get_many([b"a"], snapshot=snapshot) == [b"old"]
            assert [row.value async for row in client.scan(snapshot=snapshot)] == [b"old"]
            port.clock.ahead_s += 4
            before = snapshot.expires_ms
            await snapshot.renew()
            assert snapshot.expires_ms > before
            port.clock.ahead_s += 6
            with pytest.raises(SnapshotExpired):
                await client.get(b"a", snapshot=snapshot)
            with pytest.raises(SnapshotExpired):
                await snapshot.renew()


async def test_arrow() -> None:
    async with connected() as (client, port, wire):
        rows = await fill(port)
        table = await client.scan_arrow(prefix=b"k00")
        assert table.column("key").to_pylist() == [row.key for row in rows if row.key.startswith(b"k00")]
        assert (await client.scan_arrow(prefix=b"no")).num_rows == 0
        wire.weather = [2000]
        assert (await client.scan_arrow()).num_rows == 200
