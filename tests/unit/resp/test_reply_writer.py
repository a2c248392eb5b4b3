"""Replies that wait for memory."""

import asyncio

from shale.core.memory_account import MemoryAccount
from shale.resp.reply_writer import ReplyWriter
from shale.service.memory.process_memory import ProcessMemory
from tests.unit.resp.harness import harness

MIB = 1 << 20


class ReadingClient(asyncio.Transport):
    """A connection whose client has read everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.size_bytes = 0
        self.last: object = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.size_bytes += len(data)
        self.last = data

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def test_clients_with_a_part_of_the_memory_do_not_wait_for_each_other() -> None:
    """Each has read a value of 2 MiB for an EXEC whose other replies were cached."""

    async def scenario() -> None:
        async with harness() as home:
            memory = home.backend.memory = ProcessMemory(MemoryAccount(1 << 40), 32 * MIB)
            both = asyncio.Barrier(2)

            async def client() -> int:
                await memory.large_values.take(6 * MIB)
                await both.wait()
                transport = ReadingClient()
                writer = ReplyWriter(home.backend, home.talker().session, transport)
                assert await writer.send([b"x" * (12 * MIB)], 12 * MIB)
                assert type(transport.last) is bytes, "a view of the last bytes would keep the whole reply"
                return transport.size_bytes

            async with asyncio.timeout(60):
                assert await asyncio.gather(client(), client()) == [12 * MIB] * 2
            assert memory.responses.used_bytes == 0

    asyncio.run(scenario())


def test_a_reply_of_up_to_a_mebibyte_does_not_wait_for_memory() -> None:
    """It would keep its bytes, uncounted, while it waits for what clients have that do not read."""

    async def scenario() -> None:
        async with harness() as home:
            memory = home.backend.memory = ProcessMemory(MemoryAccount(1 << 40), 4 * MIB)
            memory.responses.note(2 * MIB)
            transport = ReadingClient()
            writer = ReplyWriter(home.backend, home.talker().session, transport)
            async with asyncio.timeout(60):
                assert await writer.send([b"x" * MIB], MIB)
            assert transport.size_bytes == MIB

    asyncio.run(scenario())
