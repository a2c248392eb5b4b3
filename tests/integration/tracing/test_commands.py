"""Spans of commands of the Redis port, and of reads that miss the cache."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from opentelemetry.trace import StatusCode
from pydantic import SecretStr

import shale
from shale.env import Env
from shale.resp.options import RespOptions
from shale.resp.server import serve_resp
from shale.service.access import AccessTokens, Role
from shale.service.http.server import open_socket
from shale.service.process import PortServices
from shale.store.connect import connect
from shale.telemetry import tracing
from shale.telemetry.metrics import Metrics
from tests.integration.resp.port import Line, StallingStore, encoded
from tests.unit.telemetry.spans import Spans, attributes

Scenario = Callable[[Line, Spans, StallingStore], Awaitable[None]]
SECRETS = ("secret-key", "secret-value", "password")


@pytest.fixture
def spans(request: pytest.FixtureRequest) -> Iterator[Spans]:
    one = Spans(getattr(request, "param", 1.0))
    tracing.enable(one.traces)
    yield one
    tracing.enable(None)


def served(spans: Spans, scenario: Scenario, *, password: str | None = None, request_timeout_s: float = 60.0) -> None:
    """Serve a database whose rows are in an SST, and no longer in memory."""

    async def run() -> None:
        store, env, metrics = StallingStore(), Env.system(), Metrics(db="orders")
        async with shale.Db.open("orders", store=store, env=env, flush_interval=0.01) as before:
            await before.put(b"secret-key", b"secret-value" * 100)
            await before.flush("memtable")
        tokens = AccessTokens(() if password is None else [(SecretStr(password), Role.WRITE)])
        options = RespOptions(request_timeout_s=request_timeout_s)
        listener = open_socket("127.0.0.1", 0, setting="resp.port")
        number = listener.getsockname()[1]
        requests = connect(store, env, metrics, component="writer")
        async with (
            shale.Db.open(
                "orders", store=requests, env=env, l0_sst_size_bytes=1 << 20, max_unflushed_bytes=2 << 20
            ) as db,
            serve_resp(db, listener, env, metrics, options, services=PortServices(tokens=tokens), drain_timeout_s=0.1),
        ):
            line = Line(*await asyncio.open_connection("127.0.0.1", number))
            try:
                await scenario(line, spans, store)
            finally:
                store.gate.set()
                line.writer.close()
                await line.writer.wait_closed()

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await run()

    asyncio.run(bounded())


def links(spans: Spans) -> list[int]:
    return [link.context.span_id for flush in spans.named("wal.flush") for link in flush.links]


def test_a_read_that_misses_the_cache_shows_what_it_read(spans: Spans) -> None:
    async def scenario(line: Line, spans: Spans, store: StallingStore) -> None:
        assert await line.say("GET", "secret-key") == b"secret-value" * 100
        await line.say("PING")
        (get,) = spans.named("GET orders")
        (lookup,) = spans.children(get)
        assert (lookup.name, attributes(lookup)["slatedb.keys"], attributes(lookup)["slatedb.ssts"]) == ("lookup", 1, 1)
        index, blocks = spans.children(lookup)
        assert (index.name, blocks.name) == ("sst.index", "sst.blocks")
        paths = set()
        for step in (index, blocks):
            (request,) = spans.children(step)
            assert request.name == "object_store.get_range"
            paths |= {attributes(step)["slatedb.object"], attributes(request)["slatedb.object"]}
        (path,) = paths
        assert path.startswith("orders/compacted/")
        assert await line.say("GET", "secret-key") == b"secret-value" * 100
        await line.say("PING")
        assert spans.children(spans.named("GET orders")[1]) == []

    served(spans, scenario)


def test_the_span_of_a_command_and_of_a_pipeline(spans: Spans) -> None:
    async def scenario(line: Line, spans: Spans, store: StallingStore) -> None:
        assert await line.say("AUTH", "password") == "OK"
        assert await line.say("set", "secret-key", "secret-value") == "OK"
        for words in ((("GET", "a"), ("GET", "b"), ("GET", "c")), (("GET", "a"), ("INCR", "secret-value"))):
            line.writer.write(b"".join(encoded(*each) for each in words))
            for _ in words:
                await line.answer()
        await line.say("NOPE-secret-value")
        await line.say("PING")
        said = {span.name: attributes(span) for span in spans.ended() if span.parent is None}
        both = {"db.namespace": "orders", "network.protocol.name": "resp"}
        assert said["SET orders"] == {**both, "db.operation.name": "SET"}
        assert said["PIPELINE GET orders"] == {
            **both,
            "db.operation.name": "PIPELINE GET",
            "db.operation.batch.size": 3,
        }
        assert said["PIPELINE orders"]["db.operation.name"] == "PIPELINE"
        assert said["OTHER orders"]["db.operation.name"] == "OTHER"
        (write,) = spans.named("SET orders")
        assert write.context is not None
        while write.context.span_id not in links(spans):  # noqa: ASYNC110 - the flush does not tell
            await asyncio.sleep(0.01)
        texts = "".join(span.to_json() for span in spans.ended())
        assert not [each for each in SECRETS if each in texts]

    served(spans, scenario, password="password")


@pytest.mark.parametrize("spans", [0.0, 1.0], indirect=True)
def test_a_command_that_fails_has_a_span_in_any_case(spans: Spans) -> None:
    async def scenario(line: Line, spans: Spans, store: StallingStore) -> None:
        store.gate = asyncio.Event()  # type: ignore[assignment]  # like the other one
        assert await line.say("SET", "full", b"x" * (3 << 20)) == "OK"
        assert str(await line.say("SET", "a", "1")).startswith("TRYAGAIN ")
        store.gate.set()
        await line.say("PING")
        failed = [span for span in spans.named("SET orders") if span.status.status_code is StatusCode.ERROR]
        assert len(failed) == 1
        assert attributes(failed[0])["db.operation.name"] == "SET"
        assert attributes(failed[0])["error.type"] == "timeout"

    served(spans, scenario, request_timeout_s=0.2)
