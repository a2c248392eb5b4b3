"""Rows through a writer's HTTP interface: in order, in bounded batches, each batch once, also with network faults."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import httpx
import pyarrow as pa
import pytest

import shale
from shale.api.app import Api
from shale.api.build import build_writer_api
from shale.api.settings import WritesHttpSection
from shale.env import Env, InlineCpu
from shale.errors import AccessDenied, InvalidRequestError, UnavailableError
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.testing.sim_process import SimClock
from shale.testing.virtual_loop import VirtualLoop
from shale_spark.load.append import append_rows, operations
from shale_spark.load.batch_sender import BatchSender, Endpoint
from shale_spark.load.request import LoadRequest
from shale_spark.load.rules import DuplicateKeys
from shale_spark.load.write_options import AppendRequest, write_request

URL = "http://writer"


class Wire(httpx.AsyncBaseTransport):
    """A transport to a writer: each entry of ``weather`` fails one request, then all succeed."""

    def __init__(self, api: Api, weather: Sequence[str], env: Env) -> None:
        self._inner = httpx.ASGITransport(app=cast("Any", api))
        self._weather = list(weather)
        self._env = env
        self.times_s: list[float] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.times_s.append(self._env.clock.monotonic_s())
        spoiled = self._weather.pop(0) if self._weather else ""
        if spoiled == "lost request":
            raise httpx.ConnectError("refused")
        if spoiled.isdigit():
            return httpx.Response(int(spoiled), headers={"Retry-After": "12"}, text="not now")
        answer = await self._inner.handle_async_request(request)
        if spoiled == "lost answer":
            await answer.aread()
            raise httpx.ReadError("cut")
        return answer


Scenario = Callable[[shale.Db, BatchSender, Wire, Env], Awaitable[None]]


def run(scenario: Scenario, *weather: str, token: str | None = None, **limits: Any) -> None:
    """Run a scenario in virtual time: a database in memory, the HTTP interface of the writer, and the transport."""
    loop = VirtualLoop()
    env = Env(SimClock(loop), random.Random(1), InlineCpu())

    async def main() -> None:
        metrics, http = Metrics(), WritesHttpSection(**limits)
        async with shale.Db.open("db", store=MemoryStore(), flush_interval=0, env=env) as db:
            api = build_writer_api(db, http, metrics, env, max_key_bytes=65_535)
            wire = Wire(api, weather, env)
            endpoint = Endpoint(url=URL, token=token, timeout_s=60)
            headers = endpoint.client().headers
            async with httpx.AsyncClient(transport=wire, base_url=URL, headers=headers) as client:
                await scenario(db, BatchSender(endpoint, client, env, name="w.0"), wire, env)

    asyncio.set_event_loop(loop)
    try:
        task = loop.create_task(main())
        loop.run_until(3600)
        task.result()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def request(**options: str) -> AppendRequest:
    made = write_request({"endpoint": URL, **options})
    assert isinstance(made, AppendRequest)
    return made


def batches(*sizes: int) -> list[pa.RecordBatch]:
    made, first = [], 0
    for size in sizes:
        keys = [b"%05d" % number for number in range(first, first + size)]
        made.append(pa.RecordBatch.from_pydict({"key": keys, "value": [key * 3 for key in keys]}))
        first += size
    return made


async def contents(db: shale.Db) -> dict[bytes, bytes]:
    return {row.key: row.value async for row in db.scan()}


def test_rows_arrive_in_batches_that_are_commits() -> None:
    async def scenario(db: shale.Db, sender: BatchSender, wire: Wire, env: Env) -> None:
        assert await append_rows(batches(250, 0, 30), request(batch_rows="100"), sender, env) == 280
        assert db.status.last_seq == 4
        assert db.status.durable_seq == 4
        assert await contents(db) == {b"%05d" % number: b"%05d" % number * 3 for number in range(280)}

    run(scenario)


@pytest.mark.parametrize(
    "weather",
    [
        pytest.param(["lost answer"], id="an answer is lost"),
        pytest.param(["lost answer", "lost answer", "503", "lost answer"], id="many are"),
        pytest.param(["lost request", "429", "421", "502", "408"], id="requests are lost or refused for now"),
    ],
)
def test_each_batch_is_committed_once_whatever_the_wire_does(weather: list[str]) -> None:
    async def scenario(db: shale.Db, sender: BatchSender, wire: Wire, env: Env) -> None:
        await append_rows(batches(10, 10), request(), sender, env)
        assert db.status.last_seq == 2
        assert len(await contents(db)) == 20
        assert len(wire.times_s) == 2 + len(weather)

    run(scenario, *weather)


def test_a_batch_that_equals_an_earlier_one_is_not_taken_for_its_repetition() -> None:
    async def scenario(db: shale.Db, sender: BatchSender, wire: Wire, env: Env) -> None:
        rows = pa.RecordBatch.from_pydict({"key": [b"k"] * 3, "value": [b"1", b"2", b"1"]})
        await append_rows([rows], request(batch_rows="1"), sender, env)
        assert await contents(db) == {b"k": b"1"}

    run(scenario)


def test_a_task_that_is_run_again_names_its_batches_as_before() -> None:
    async def scenario(db: shale.Db, sender: BatchSender, wire: Wire, env: Env) -> None:
        endpoint = Endpoint(url=URL)
        async with httpx.AsyncClient(transport=wire, base_url=URL, headers=endpoint.client().headers) as client:
            for _attempt in range(2):
                again = BatchSender(endpoint, client, env, name="w.0")
                await append_rows(batches(10, 10), request(), again, env)
        assert db.status.last_seq == 2

    run(scenario)


def test_the_token_is_in_no_text() -> None:
    assert "hidden" not in repr(request(token="hidden"))


def test_the_writer_is_left_alone_as_long_as_it_wants() -> None:
    async def scenario(db: shale.Db, sender: BatchSender, wire: Wire, env: Env) -> None:
        await append_rows(batches(1), request(), sender, env)
        first, second, third = wire.times_s
        assert second - first == 12
        assert third - second == 12

    run(scenario, "503", "429")


def test_an_exhausted_timeout_raises_the_last_error() -> None:
    async def scenario(db: shale.Db, sender: BatchSender, wire: Wire, env: Env) -> None:
        with pytest.raises(UnavailableError, match=r"http://writer took no batch in \d+ tries in 60 s: 503 not now"):
            await append_rows(batches(1), request(), sender, env)
        assert 50 < env.clock.monotonic_s() <= 60

    run(scenario, *["503"] * 100)


def test_a_refusal_is_final_and_says_why() -> None:
    async def scenario(db: shale.Db, sender: BatchSender, wire: Wire, env: Env) -> None:
        with pytest.raises(InvalidRequestError, match="begins with key '00000': 413 ops: 6 operations"):
            await append_rows(batches(6), request(), sender, env)
        assert len(wire.times_s) == 1

    run(scenario, max_batch_rows=5)


def test_a_row_that_is_too_large_for_the_writer_is_named() -> None:
    async def scenario(db: shale.Db, sender: BatchSender, wire: Wire, env: Env) -> None:
        rows = pa.RecordBatch.from_pydict({"key": [b"small", b"large"], "value": [b"v", bytes(5000)]})
        with pytest.raises(InvalidRequestError, match="begins with key 'large': 413"):
            await append_rows([rows], request(batch_bytes="1000"), sender, env)
        assert await contents(db) == {b"small": b"v"}

    run(scenario, max_body_bytes=4000)


@pytest.mark.parametrize(
    ("token", "refusal"),
    [(None, "a bearer token is required"), ("wrong", "the bearer token is unknown"), ("right", None)],
)
def test_the_token_is_sent(token: str | None, refusal: str | None) -> None:
    async def scenario(db: shale.Db, sender: BatchSender, wire: Wire, env: Env) -> None:
        if refusal is not None:
            with pytest.raises(AccessDenied, match=f"401 {refusal}"):
                await append_rows(batches(1), request(), sender, env)
        else:
            await append_rows(batches(1), request(), sender, env)
            assert db.status.last_seq == 1

    run(scenario, token=token, bearer_token="right")


def test_a_bad_row_is_named_and_what_was_before_it_stays() -> None:
    async def scenario(db: shale.Db, sender: BatchSender, wire: Wire, env: Env) -> None:
        bad = pa.RecordBatch.from_pydict({"key": [b"fine", None], "value": [b"x", b"of the bad row"]})
        with pytest.raises(InvalidRequestError, match="value 'of the bad row': the key is null"):
            await append_rows([*batches(3), bad], request(), sender, env)
        assert len(await contents(db)) == 3

    run(scenario)


def test_batches_are_bounded_by_rows_and_bytes() -> None:
    (batch,) = batches(10)  # 20 bytes a row

    def sizes(**limits: str) -> list[int]:
        return [len(ops) for ops in operations(batch, request(**limits), now_ms=0)]

    assert sizes() == [10]
    assert sizes(batch_rows="4") == [4, 4, 2]
    assert sizes(batch_bytes="60") == [3, 3, 3, 1]
    assert sizes(batch_bytes="1") == [1] * 10


def test_rows_that_end_before_all_time_or_never_are_taken() -> None:
    async def scenario(db: shale.Db, sender: BatchSender, wire: Wire, env: Env) -> None:
        at = pa.array([2**63 - 1, -(2**63)], pa.int64())
        rows = pa.RecordBatch.from_pydict({"key": [b"never", b"before"], "value": [b"1", b"2"], "at": at})
        await append_rows([rows], request(expire_at="at"), sender, env)
        never, before = await db.get_row(b"never"), await db.get_row(b"before")
        assert never is not None
        assert never.expire_ts is None
        assert before is None or before.expire_ts == before.create_ts

    run(scenario)


@pytest.mark.parametrize("name", ["shale_key", "shale_value", "SHALE_EXPIRE_MS"])
def test_a_column_with_a_name_of_ours_is_taken_for_nothing_else(name: str) -> None:
    batch = pa.RecordBatch.from_pydict({"key": ["a"], name: [1], "n": [2]})
    with pytest.raises(InvalidRequestError, match=f"column '{name}' has a reserved name"):
        list(operations(batch, request(value_format="json"), now_ms=0))
    assert list(operations(batch, request(value_format="json", value="n"), now_ms=0)) == [[("put", b"a", b'{"n":2}')]]


def test_lifetimes_are_what_is_left() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "id": ["a", "b", "c"],
            "at": pa.array([5_500_000, 1_000_000, None], pa.timestamp("us", "UTC")),
            "n": pa.array([1, 2, 3], pa.int32()),
        }
    )
    made = request(key="id", expire_at="at", value_format="json")
    assert list(operations(batch, made, now_ms=2000)) == [
        [("put", b"a", b'{"n":1}', 3500), ("put", b"b", b'{"n":2}', 0), ("put", b"c", b'{"n":3}')]
    ]
    made = request(key="id", expire_at="at", value="n", value_format="json", ttl="9s")
    assert [op[3:] for ops in operations(batch, made, now_ms=2000) for op in ops] == [(3500,), (0,), (9000,)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "endpoint: the address of a writer"),
        ({"mode": "replace"}, "mode: 'replace' is none of append, build"),
        ({"endpoint": "writer:8080"}, "does not begin with http"),
        ({"endpoint": URL, "sst_bytes": "1MiB"}, "sst_bytes: no such option"),
        ({"mode": "build", "path": "file:///x/db", "endpoint": URL}, "endpoint: no such option"),
        ({"mode": "build"}, "no database was named"),
        ({"endpoint": "http://"}, "and a host"),
        ({"endpoint": "http://writer:port"}, "endpoint: Invalid port"),
        ({"endpoint": "http://me:hush@writer"}, "a writer has no users"),
        ({"endpoint": URL, "token": "hush\n"}, "token: a header holds"),
        ({"endpoint": URL, "ttl": "99999999999d"}, "ttl: '99999999999d' is longer than"),
        ({"endpoint": URL, "batch_rows": "0"}, "batch_rows"),
        ({"endpoint": URL, "timeout": "soon"}, "timeout"),
        ({"endpoint": URL, "value_format": "xml"}, "no value format"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        write_request(options)


def test_the_options_of_a_build_are_those_of_a_load() -> None:
    made = write_request({"mode": "build", "path": "file:///x/db", "sst_bytes": "1MiB", "min_filter_keys": "5"})
    assert isinstance(made, LoadRequest)
    assert (made.where.store, made.where.root) == ("file:///x", "db")
    assert (made.sst_bytes, made.sst.min_filter_keys, made.duplicates) == (1 << 20, 5, DuplicateKeys.ERROR)
    made = write_request({"mode": "build", "store": "file:///x", "path": "a/db", "value": "v"})
    assert isinstance(made, LoadRequest)
    assert (made.where.store, made.where.root, made.columns.values) == ("file:///x", "a/db", ("v",))
