"""Clients of the Redis port that do not read their replies."""

import asyncio

from shale.core.memory_account import MemoryAccount
from shale.service.memory.process_memory import ProcessMemory
from tests.integration.resp.port import Line, Port, encoded, serve

KEYS = ("a", "b", "c")
SIZE = 900 << 10
BUDGET = 16 << 20
CLIENTS = 12


def test_unread_replies_are_bounded_and_others_are_served() -> None:
    """The replies would take twice the budget; each is complete once its client reads it."""
    memory = ProcessMemory(MemoryAccount(1 << 40), BUDGET)

    async def scenario(port: Port) -> None:
        honest = await port.connect()
        for key in KEYS:
            await honest.say("SET", key, key * SIZE)
        unread = [await port.connect() for _ in range(CLIENTS)]
        for line in unread:
            line.writer.write(encoded("MGET", *KEYS))
        for number in range(50):
            assert await honest.say("SET", "d", str(number)) == "OK"
            assert memory.responses.used_bytes <= BUDGET // 2 + CLIENTS * (512 << 10)

        async def read(line: Line) -> list[int]:
            return [len(value) for value in await line.answer()]

        assert await asyncio.gather(*(read(line) for line in unread)) == [[SIZE] * 3] * CLIENTS
        assert (memory.responses.used_bytes, memory.scans.used_bytes) == (0, 0)

    serve(scenario, memory=memory)


def test_a_client_that_reads_nothing_is_dropped() -> None:
    """After ``resp.send_timeout``, and its memory is free again."""
    memory = ProcessMemory(MemoryAccount(1 << 40), BUDGET)

    async def scenario(port: Port) -> None:
        line = await port.connect()
        for key in KEYS:
            await line.say("SET", key, key * SIZE)
        line.writer.write(encoded("MGET", *KEYS) * 5)
        while not memory.responses.used_bytes:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0.01)
        # The transport tells of its end one round of the event loop later.
        while port.backend.connections or memory.responses.used_bytes:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (memory.responses.used_bytes, memory.scans.used_bytes) == (0, 0)
        assert len(await line.rest()) < 15 * SIZE

    serve(scenario, memory=memory, send_timeout_s=0.3)
