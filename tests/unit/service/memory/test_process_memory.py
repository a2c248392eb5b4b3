"""The budgets of a process."""

import asyncio

import pytest

from shale.core.memory_account import MemoryPart
from shale.errors import ResponseTooLarge, UnavailableError
from shale.service.memory.process_memory import ProcessMemory

pytestmark = pytest.mark.anyio
MIB = 1 << 20
SMALL = 32 << 10


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Reads:
    """Reads of values of one size, which end when the test says so."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.rooms: list[int] = []
        self.ended = asyncio.Event()

    async def read(self, room_bytes: int) -> int:
        self.rooms.append(room_bytes)
        if self.size_bytes > room_bytes:
            raise ResponseTooLarge("too large")
        await self.ended.wait()
        return self.size_bytes


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_reads_of_unknown_size_have_a_budget_together() -> None:
    """Two have room for 1 MiB; small values are read meanwhile, and the other reads wait."""
    memory, large, small = ProcessMemory(response_bytes=16 * MIB), Reads(SMALL + 1), Reads(SMALL)
    tasks = [asyncio.create_task(memory.read_unsized(large.read)) for _ in range(4)]
    await turns()
    assert large.rooms == [MIB, MIB, SMALL, SMALL]
    assert memory.account.used_bytes(MemoryPart.RESPONSES) == 2 * MIB
    small.ended.set()
    assert await memory.read_unsized(small.read) == SMALL
    assert small.rooms == [SMALL]
    large.ended.set()
    assert await asyncio.gather(*tasks) == [SMALL + 1] * 4
    assert large.rooms == [MIB, MIB, SMALL, SMALL, MIB, MIB]
    assert memory.account.used_bytes(MemoryPart.RESPONSES) == 0


async def test_values_that_are_too_large_give_the_budget_back() -> None:
    memory, large = ProcessMemory(response_bytes=MIB), Reads(MIB + 1)
    for _ in range(3):
        with pytest.raises(ResponseTooLarge):
            await memory.read_unsized(large.read)
    assert large.rooms == [MIB] * 3


async def test_a_read_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shale.service.memory.process_memory.WAIT_MAX_S", 0.01)
    memory, large = ProcessMemory(response_bytes=8 * MIB), Reads(SMALL + 1)
    first = asyncio.create_task(memory.read_unsized(large.read))
    await turns()
    with pytest.raises(UnavailableError, match="try again"):
        await memory.read_unsized(large.read)
    large.ended.set()
    assert await first == SMALL + 1


async def test_a_read_of_unknown_size_does_not_wait_for_large_values() -> None:
    """It would keep the budget of others meanwhile, for as long as a client does not read its response."""
    memory = ProcessMemory(response_bytes=4 * MIB)
    memory.responses.note(2 * MIB)

    async def read(_room_bytes: int) -> None:
        await memory.large_values.take(MIB)

    with pytest.raises(ResponseTooLarge, match="no memory for 1048576 bytes"):
        await memory.read_unsized(read)
    memory.responses.give_back(2 * MIB)
    await memory.read_unsized(read)
    assert memory.responses.used_bytes == MIB
