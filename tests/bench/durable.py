"""Durable puts with adaptive flushing, beside raw conditional puts; a hundred clients beside SlateDB; store requests.

The hundred clients of ours meet a store that answers after a millisecond, those of SlateDB one that answers at once.
"""

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import anyio
from slatedb import uniffi as slate

import shale
from shale.store.connect import open_store
from shale.store.memory import MemoryStore
from shale.store.port import CREATE
from tests.bench.line import BenchLine
from tests.bench.peers import key_of

PUTS = 300
CLIENTS = 100
PUTS_EACH = 20
VALUE = b"v" * 100
REQUESTS = (
    "get",
    "get_if_changed",
    "get_range",
    "head",
    "put",
    "put_stream",
    "list",
    "list_pages",
    "delete",
    "delete_many",
    "copy",
)


class SlowPutStore(MemoryStore):
    """A store that takes a millisecond for every put."""

    async def put(self, *args: Any, **keywords: Any) -> Any:
        """See ``ObjectStore``."""
        await anyio.sleep(0.001)
        return await super().put(*args, **keywords)


class RequestCountingStore(MemoryStore):
    """A store that counts its requests."""

    count = 0

    def __getattribute__(self, name: str) -> Any:
        if name in REQUESTS:
            RequestCountingStore.count += 1
        return super().__getattribute__(name)


async def one_client() -> tuple[float, float]:
    """Return seconds at the median of a raw put and of a durable one, measured in turn because the disk drifts."""
    raw, ours = [], []
    with tempfile.TemporaryDirectory() as directory:
        store = open_store(f"file://{Path(directory)}")
        async with shale.Db.open(f"file://{directory}/db", flush_interval=0) as db:
            for number in range(PUTS):
                start = perf_counter()
                await store.put(f"raw/{number}", VALUE * 3, mode=CREATE)
                raw.append(perf_counter() - start)
                start = perf_counter()
                await (await db.put(key_of(number), VALUE)).durable()
                ours.append(perf_counter() - start)
        await store.aclose()
    return median(raw), median(ours)


async def rate(put: Any) -> float:
    """Return durable puts per second of all clients together."""

    async def client(name: int) -> None:
        for number in range(PUTS_EACH):
            await put(key_of(name * PUTS_EACH + number))

    start = perf_counter()
    await asyncio.gather(*map(client, range(CLIENTS)))
    return CLIENTS * PUTS_EACH / (perf_counter() - start)


async def our_rate() -> float:
    """Return the rate of Shale."""
    async with shale.Db.open("db", store=SlowPutStore(), flush_interval=0) as db:

        async def put(key: bytes) -> None:
            await (await db.put(key, VALUE)).durable()

        await rate(put)
        return median([await rate(put) for _ in range(5)])


async def their_rate() -> float:
    """Return the rate of SlateDB with its default settings."""
    db = await slate.DbBuilder("db", slate.ObjectStore.resolve("memory:///")).build()

    async def put(key: bytes) -> None:
        await (await db.put(key, VALUE)).await_durable()

    result = await rate(put)
    await db.shutdown()
    return result


async def requests_of_reopening() -> int:
    """Return the requests to reopen a closed database with some L0s."""
    store = RequestCountingStore()
    async with shale.Db.open("db", store=store) as db:
        for number in range(4):
            await db.put(b"%d" % number, VALUE)
            await db.flush("memtable")
    before = RequestCountingStore.count
    db = await shale.Db.open("db", store=store)
    count = RequestCountingStore.count - before
    await db.close()
    return count


def durable_lines() -> list[BenchLine]:
    """Milliseconds at the median, rates, and requests."""
    raw, alone = (seconds * 1e3 for seconds in asyncio.run(one_client()))
    ours, theirs = asyncio.run(our_rate()), asyncio.run(their_rate())
    return [
        BenchLine(
            name="durable put, one client | raw conditional put",
            ours=alone,
            reference=raw,
            unit="ms",
            target="<= 1.3x one raw conditional put",
        ),
        BenchLine(
            name="durable puts, 100 clients | slatedb",
            ours=ours,
            reference=theirs,
            unit="puts/s",
            target=">= 25x wheel",
        ),
        BenchLine(
            name="store requests of reopening",
            ours=asyncio.run(requests_of_reopening()),
            unit="requests",
            target="<= 20 (SlateDB: 62)",
        ),
    ]
