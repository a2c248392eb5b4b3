"""What the Redis port counts and measures."""

from typing import Any

import anyio
import pytest

from tests.integration.resp.port import Port, encoded, samples_of, serve, until, waits


def test_what_is_counted() -> None:
    async def scenario(served: Port) -> None:
        line = await served.connect()
        await line.say("SET", "a", "1")
        await line.say("GET")
        await line.say("NOPE")
        samples = samples_of(served)
        assert samples["shale_resp_commands_total", "write,set"] == 1
        assert samples["shale_resp_commands_total", "read,get"] == 1
        assert samples["shale_resp_commands_total", "other,other"] == 1
        for name in ("copy", "eval", "exec", "expireat", "flushdb", "getdel", "persist", "pexpireat"):
            assert samples["shale_resp_failures_total", f"write,{name}"] == 0
        assert samples["shale_resp_failures_total", "write,other"] == 0, "writes that do not become durable"
        assert samples["shale_resp_errors_total", "get"] == 1
        assert samples["shale_resp_errors_total", "set"] == 0
        assert samples["shale_resp_connections_total", "accepted"] == 1
        assert samples["shale_resp_connections_open", ""] == 1

    serve(scenario)


def test_the_time_to_the_reply_is_counted_by_category() -> None:
    async def scenario(served: Port) -> None:
        line = await served.connect()
        line.writer.write(b"".join(encoded("SET", f"k{number}", "v") for number in range(600)))
        assert [await line.answer() for _ in range(600)] == ["OK"] * 600
        for words in (("MULTI",), ("GET", "k1"), ("EXEC",), ("MGET", "k1", "k2"), ("KEYS", "*"), ("DBSIZE",)):
            await line.say(*words)
        assert await line.say("NOPE", "k") is not None
        assert [waits(served, each, "+Inf")[0] for each in ("read", "write", "scan", "other")] == [2, 601, 2, 1]

    serve(scenario)


def test_the_time_to_the_reply_includes_the_wait_for_durability() -> None:
    async def scenario(served: Port) -> None:
        line = await served.connect()
        served.store.gate = anyio.Event()
        line.writer.write(encoded("SET", "a", "1"))
        await until(lambda: served.db.status.last_seq == 1)
        assert waits(served, "write") == (0, 0)
        served.store.gate.set()
        assert await line.answer() == "OK"
        assert waits(served, "write")[0] == 1

    serve(scenario, durability="durable")


def test_a_defect_counts_as_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(served: Port) -> None:
        line = await served.connect()

        def broken(*_: Any) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(served.backend.env.clock, "now_ms", broken)
        assert str(await line.say("TIME")).startswith("ERR internal server error")
        assert await line.say("PING") == "PONG"
        assert (served.backend.errors["time"], served.backend.failures["time"]) == (1, 1)

    serve(scenario)
