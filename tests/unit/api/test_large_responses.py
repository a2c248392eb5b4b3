"""Responses of ``get-many`` that are large for the memory of the process."""

import asyncio
import base64
import random
import tracemalloc

import pyarrow as pa
import pytest

from shale.api.limits import Limits
from shale.api.responses import values_response
from shale.api.settings import HttpSection
from shale.engine.options import FlushType
from shale.env import Env
from shale.service.memory.process_memory import ProcessMemory
from shale.service.process import PortServices
from shale.sst.budget import MemoryBudget
from shale.telemetry.metrics import Metrics
from tests.unit.api.harness import b64, open_port

pytestmark = pytest.mark.anyio
MIB = 1 << 20
KEYS = [b"%d" % number for number in range(4)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_one_large_response_is_made_at_a_time_where_memory_has_room_for_one() -> None:
    limits = Limits(HttpSection(), Metrics(), Env.system(), PortServices(memory=ProcessMemory(response_bytes=2 * MIB)))
    made: list[str] = []
    goes_on = asyncio.Event()

    async def make(name: str) -> None:
        async with limits.large_response():
            made.append(name)
            await goes_on.wait()

    first = asyncio.create_task(make("first"))
    second = asyncio.create_task(make("second"))
    for _ in range(50):
        await asyncio.sleep(0)
    assert made == ["first"]
    goes_on.set()
    await asyncio.gather(first, second)
    assert made == ["first", "second"]


async def test_values_have_no_more_bytes_than_memory_has_for_responses() -> None:
    async with open_port(memory=ProcessMemory(response_bytes=4 * MIB)) as port:
        for key in KEYS:
            await port.db.put(key, key * (700 << 10))
        few = await port.post("/v1/get-many", {"keys": [b64(key) for key in KEYS[:2]]})
        assert (few.status_code, len(few.json()["values"])) == (200, 2)
        many = await port.post("/v1/get-many", {"keys": [b64(key) for key in KEYS]})
        assert (many.status_code, many.json()["kind"]) == (413, "invalid")
        assert f"more than {2 * MIB} bytes; ask for fewer keys" in many.json()["detail"]


async def test_a_single_value_is_never_too_large_but_takes_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    take_turn = Limits.large_response
    monkeypatch.setattr(Limits, "large_response", lambda limits: turns.append(1) or take_turn(limits))
    async with open_port(memory=ProcessMemory(response_bytes=2 * MIB)) as port:
        value = b"abc" * MIB
        await port.db.put(b"k", value)
        single = await port.post("/v1/get-many", {"keys": [b64(b"k")]})
        assert (single.status_code, turns) == (200, [1])
        assert base64.b64decode(single.json()["values"][0]) == value


@pytest.mark.parametrize("packed", [False, True])
async def test_values_go_while_they_are_encoded(packed: bool) -> None:
    """The peak is the response, and what is left of the values."""
    tracemalloc.start()
    try:
        values: list[bytes | None] = [bytes(MIB) for _ in range(16)]
        tracemalloc.reset_peak()
        response = await values_response(values, packed=packed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    size = len(response.body)
    assert peak < size * 9 // 8 + 4 * MIB  # a buffer that grows has an eighth more


async def test_reads_of_large_values_keep_none_while_they_wait_for_memory() -> None:
    """Their values are columns of a memtable, so that each read makes a copy."""
    memory = ProcessMemory(response_bytes=8 * MIB)
    async with open_port(memory=memory) as port:
        values = [key * (3 * MIB) for key in KEYS]
        columns = [pa.array(KEYS, pa.binary()), pa.array(values, pa.binary())]
        await port.db.write_arrow(pa.record_batch(columns, names=["key", "value"]))
        used = memory.responses.share()
        await used.take(4 * MIB)
        tracemalloc.start()
        try:
            async with asyncio.TaskGroup() as group:
                reads = [group.create_task(port.client.get(f"/v1/kv/{key.decode()}")) for key in KEYS]
                for _ in range(1000):
                    await asyncio.sleep(0)
                assert memory.responses.is_contended
                kept = tracemalloc.get_traced_memory()[0]
                used.reduce_to(0)
        finally:
            tracemalloc.stop()
    assert kept < 3 * MIB
    assert [read.result().content for read in reads] == values
    await asyncio.sleep(0)
    assert memory.responses.used_bytes == 0


async def test_a_compressed_value_is_sent_although_reading_it_takes_less_than_sending() -> None:
    memory = ProcessMemory(response_bytes=16 * MIB)
    budget = MemoryBudget(0, large_values=memory.large_values)
    value = bytes(12 * MIB) + random.Random(1).randbytes(MIB + MIB // 2)
    async with open_port(memory=memory, cache=budget, compression="zlib") as port:
        await port.db.put(b"k", value)
        await port.db.flush(FlushType.MEMTABLE)
        others = memory.responses.share()
        await others.take(2 * MIB)
        read = asyncio.create_task(port.client.get("/v1/kv/k"))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert memory.responses.is_contended
        others.reduce_to(0)
        assert (await read).content == value
