"""Connections over the loopback: order, memory, timeouts, ends."""

import asyncio
import contextlib
import socket
from typing import Any

import anyio
import pytest

from tests.integration.resp.port import (
    Port,
    encoded,
    port,
    serve,
    until,
    waits,
)
from tests.unit.resp.harness import RespFailure


def test_a_pipeline_is_answered_in_order() -> None:
    async def scenario(served: Port) -> None:
        line = await served.connect()
        words = [("SET", f"k{number}", str(number)) for number in range(1000)]
        words += [("GET", f"k{number}") for number in range(1000)]
        line.writer.write(b"".join(encoded(*each) for each in words))
        assert [await line.answer() for _ in range(1000)] == ["OK"] * 1000
        assert [await line.answer() for _ in range(1000)] == [str(number).encode() for number in range(1000)]

    serve(scenario)


def test_what_was_sent_before_the_end_is_answered() -> None:
    async def scenario(served: Port) -> None:
        line = await served.connect()
        line.writer.write(b"SET a 1\r\nget a\r\n" + encoded("GET", "a"))
        line.writer.write_eof()
        assert await line.rest() == b"+OK\r\n$1\r\n1\r\n$1\r\n1\r\n"

    serve(scenario)


def test_invalid_input_is_answered_once_after_earlier_responses() -> None:
    async def scenario(served: Port) -> None:
        line = await served.connect()
        line.writer.write(encoded("PING") + b"*1\r\n:1\r\n" + encoded("SET", "a", "1"))
        assert await line.rest() == b"+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n"
        assert await served.db.get(b"a") is None
        assert served.backend.protocol_errors == 1

    serve(scenario)


def test_a_password_and_a_large_command_in_one_breath() -> None:
    """The limits for unauthenticated clients apply up to the password and not after it."""

    async def scenario(served: Port) -> None:
        line = await served.connect()
        line.writer.write(encoded("AUTH", "secret") + encoded("SET", "a", b"x" * 100_000) + encoded("GET", "a"))
        assert [await line.answer() for _ in range(3)] == ["OK", "OK", b"x" * 100_000]
        stranger = await served.connect()
        stranger.writer.write(encoded("SET", "a", b"x" * 100_000))
        assert (await stranger.rest()).startswith(b"-ERR Protocol error: invalid bulk length")

    serve(scenario, token="secret")


@pytest.mark.slow
def test_a_client_that_goes_on_sending_is_told_why_it_is_refused() -> None:
    async def scenario(served: Port) -> None:
        line = await served.connect()
        line.writer.write(encoded("SET", "a", b"x" * 3_000_000) + encoded("SET", "a", b"y") * 10)
        assert (await line.rest()) == b"-ERR Protocol error: invalid bulk length\r\n"
        assert served.backend.calls["set"] == 0
        line.writer.close()
        await until(lambda: not served.backend.connections)
        stubborn = await served.connect()
        stubborn.writer.write(b"*x\r\n")
        await stubborn.rest()
        await until(lambda: not served.backend.connections)

    serve(scenario, max_value_bytes=1 << 20, max_command_bytes=2 << 20, request_timeout_s=0.2)


def test_too_many_clients() -> None:
    async def scenario(served: Port) -> None:
        lines = [await served.connect() for _ in range(2)]
        assert [await line.say("PING") for line in lines] == ["PONG", "PONG"]
        assert await (await served.connect()).rest() == b"-ERR max number of clients reached\r\n"
        assert await lines[0].say("QUIT") == "OK"
        assert await lines[0].rest() == b""
        assert await (await served.connect()).say("PING") == "PONG"
        assert (served.backend.connections_accepted, served.backend.connections_refused) == (3, 1)

    serve(scenario, max_connections=2)


def test_a_client_that_takes_no_answers_costs_no_memory_and_is_cut_off() -> None:
    async def scenario(served: Port) -> None:
        await served.db.put(b"big", b"x" * 200_000)
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, ("127.0.0.1", served.number))
        sent = 0
        try:
            while served.backend.connections_accepted == 0 or served.backend.connections:
                async with asyncio.timeout(0.2):
                    await loop.sock_sendall(connection, encoded("GET", "big") * 1000)
                sent += 1000
        except TimeoutError:
            pass  # the server reads no more
        except ConnectionError:
            pass  # it has hung up
        await until(lambda: not served.backend.connections)
        connection.close()
        assert served.backend.bytes_written < 20 << 20
        assert served.backend.calls["get"] < 100

    serve(scenario, request_timeout_s=0.5, send_timeout_s=0.5)


def test_a_command_that_does_not_end_is_cut_off_and_a_quiet_client_is_not() -> None:
    async def scenario(served: Port) -> None:
        quiet, slow = await served.connect(), await served.connect()
        assert await quiet.say("PING") == "PONG"
        slow.writer.write(encoded("SET", "a", "12345")[:-4])
        assert await slow.rest() == b""
        assert await quiet.say("PING") == "PONG"

    serve(scenario, request_timeout_s=0.2)


@pytest.mark.parametrize("options", [{"idle_timeout_s": 0.2}, {"token": "secret", "request_timeout_s": 0.2}])
def test_silence_that_is_not_wanted_ends_the_connection(options: dict[str, Any]) -> None:
    async def scenario(served: Port) -> None:
        assert await (await served.connect()).rest() == b""

    serve(scenario, **options)


def test_a_client_without_the_password_does_not_stay_by_talking() -> None:
    async def scenario(served: Port) -> None:
        stranger, friend = await served.connect(), await served.connect()
        assert await friend.say("AUTH", "secret") == "OK"
        with contextlib.suppress(EOFError, ConnectionError):
            while isinstance(await stranger.say("PING"), RespFailure):
                continue  # serve() bounds it
        assert await stranger.rest() == b""
        assert await friend.say("PING") == "PONG"

    serve(scenario, token="secret", request_timeout_s=0.2)


@pytest.mark.parametrize("talks", [False, True], ids=["silent", "talking"])
def test_a_transaction_that_holds_much_for_long_ends_its_connection(talks: bool) -> None:
    """Otherwise a few clients could hold all of ``max_inflight_bytes``."""

    async def scenario(served: Port) -> None:
        small, large = await served.connect(), await served.connect()
        for line, size in ((small, 1000), (large, 100_000)):
            assert await line.say("MULTI") == "OK"
            assert await line.say("SET", f"of {size}", "v" * size) == "QUEUED"
        with contextlib.suppress(EOFError, ConnectionError):
            while talks and await large.say("PING") == "QUEUED":
                continue  # serve() bounds it
        if not talks:
            assert (await large.rest()).startswith(b"-ERR the transaction is older than 0.2 s")
        assert await large.rest() == b""
        assert await small.say("EXEC") == ["OK"]
        assert await small.say("EXISTS", "of 100000") == 0
        assert served.backend.inflight_bytes == 0

    serve(scenario, request_timeout_s=0.2)


def test_large_commands_of_all_clients_together_have_a_bound() -> None:
    async def scenario(served: Port) -> None:
        lines = [await served.connect() for _ in range(4)]
        part = encoded("SET", "a", b"x" * 900_000)[:-10]
        for line in lines[:2]:
            line.writer.write(part)
        await until(lambda: served.backend.inflight_bytes > 1_700_000)
        lines[2].writer.write(part)
        assert (await lines[2].rest()).startswith(b"-ERR too many large commands")
        assert await lines[3].say("SET", "small", "1") == "OK"
        lines[0].writer.write(encoded("SET", "a", b"x" * 900_000)[-10:])
        assert await lines[0].answer() == "OK"
        lines[1].writer.close()
        await until(lambda: not served.backend.inflight_bytes)

    serve(scenario, max_value_bytes=1 << 20, max_command_bytes=2 << 20, max_inflight_bytes=2 << 20)


def test_a_durable_port_answers_when_it_is() -> None:
    async def scenario(served: Port) -> None:
        line = await served.connect()
        line.writer.write(b"".join(encoded("SET", f"k{number}", "v") for number in range(100)))
        assert [await line.answer() for _ in range(100)] == ["OK"] * 100
        assert served.db.status.durable_seq == served.db.status.last_seq == 100
        await line.say("MULTI")
        await line.say("SET", "a", "1")
        assert await line.say("EXEC") == ["OK"]
        assert served.db.status.durable_seq == 101

    serve(scenario, durability="durable")


def test_a_write_that_finds_no_room_is_given_up_and_the_rest_is_answered() -> None:
    """The store does not respond, so memory stays full."""

    async def scenario(served: Port) -> None:
        line = await served.connect()
        served.store.gate = anyio.Event()
        assert await line.say("SET", "full", b"x" * (3 << 20)) == "OK"
        line.writer.write(encoded("GET", "a") + encoded("SET", "a", "1") + encoded("GET", "a") + encoded("PING"))
        answers = [await line.answer() for _ in range(4)]
        assert answers[0] is None
        assert str(answers[1]).startswith("TRYAGAIN ")
        assert answers[2:] == [None, "PONG"]
        served.store.gate.set()
        await served.db.flush()
        assert await line.say("SET", "a", "2") == "OK"
        assert (served.backend.errors["set"], served.backend.failures["set"]) == (1, 1)
        # All replies of a pipeline come after the slowest one.
        assert waits(served, "read") == (2, 0)
        assert waits(served, "write") == (3, 2)

    serve(scenario, request_timeout_s=0.2)


def test_a_stop_ends_idle_connections_and_answers_what_runs() -> None:
    async def run() -> None:
        async with asyncio.timeout(30):
            async with port(durability="durable") as served:
                idle, busy, inside = [await served.connect() for _ in range(3)]
                assert await idle.say("PING") == "PONG"
                await inside.say("MULTI")
                await inside.say("SET", "never", "1")
                busy.writer.write(encoded("SET", "a", "1"))
                await until(lambda: served.db.status.last_seq)
            assert await idle.rest() == b""
            assert await inside.rest() == b""
            assert await busy.rest() == b"+OK\r\n"
            await served.hang_up()
            with pytest.raises(ConnectionRefusedError):
                await served.connect()

    asyncio.run(run())


def test_a_stop_does_not_wait_for_ever() -> None:
    """One client is in the middle of a command, another one waits for a flush that does not complete."""

    async def run() -> None:
        async with asyncio.timeout(30):
            async with port(drain_timeout_s=0.1, durability="durable", flush_interval=None) as served:
                lines = [await served.connect() for _ in range(2)]
                lines[0].writer.write(encoded("SET", "a", "1")[:-3])
                lines[1].writer.write(encoded("SET", "a", "1"))
                await until(lambda: served.db.status.last_seq)
            assert [await line.rest() for line in lines] == [b"", b""]
            await served.hang_up()

    asyncio.run(run())
