"""A database that writes several WAL files at the same time (docs/reference/protocol.md 4.13)."""

from typing import Any

import anyio
import pytest

import shale
from shale.admin.clones import source
from shale.engine.wal.feed.feed import WalFeed
from shale.engine.wal.feed.offset import Edge
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.format.manifest import decode_manifest
from shale.format.names import manifest_key, wal_key
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.store.memory import MemoryStore
from shale.types import Manifest

pytestmark = pytest.mark.anyio


async def latest(store: MemoryStore, path: str = "db") -> Manifest:
    return (await ManifestStore(store, path, Env.system()).read_latest()).value


async def wal_ids(store: MemoryStore) -> list[int]:
    return [int(file.id) for file in await WalStore(store, "db").list()]


async def crashed(**settings: Any) -> MemoryStore:
    """Write ten rows, each in a WAL file of its own; return the store as it is after a crash of the writer."""
    store, left = MemoryStore(), MemoryStore()
    async with shale.Db.open("db", store=store, flush_interval=0, **settings) as db:
        for number in range(10):
            handle = await db.put(b"%d" % number, b"v")
            await handle.durable()
        left.objects.update(store.objects)
    return left


async def test_every_manifest_has_the_envelope_and_rows_survive() -> None:
    store = await crashed(max_parallel_writes=3)
    assert await wal_ids(store) == list(range(1, 14))
    async with shale.Db.open("db", store=store) as db:
        assert len([row async for row in db.scan()]) == 10
        await db.flush()
    newest = (await ManifestStore(store, "db", Env.system()).read_latest()).id
    assert newest > 3
    for manifest_id in range(1, newest + 1):
        found = await store.get(manifest_key("db", manifest_id))
        assert found is not None
        assert bytes(found.data[:2]) == b"\xf0\xf2"
        assert decode_manifest(found.data).max_parallel_writes == 3


async def test_without_the_option_a_database_has_no_envelope_and_one_fence() -> None:
    store = MemoryStore()
    async with shale.Db.open("db", store=store, max_parallel_writes=1):
        pass
    assert (await latest(store)).exclusive is None
    assert await wal_ids(store) == [1]


async def test_a_later_open_has_the_number_of_the_creation() -> None:
    store = await crashed(max_parallel_writes=2)
    before = await wal_ids(store)
    async with shale.Db.open("db", store=store):
        pass
    assert len(await wal_ids(store)) == len(before) + 2
    for wanted, found in ((3, 2), (1, 2)):
        with pytest.raises(InvalidRequestError, match=f"max_parallel_writes={wanted}: .* created with {found}"):
            await shale.Db.open("db", store=store, max_parallel_writes=wanted)


async def test_a_database_that_writes_in_order_stays_so() -> None:
    store = await crashed()
    with pytest.raises(InvalidRequestError, match=r"max_parallel_writes=4: .* created with 1"):
        await shale.Db.open("db", store=store, max_parallel_writes=4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_parallel_writes": 0}, "max_parallel_writes must be between 1 and 64"),
        ({"max_parallel_writes": 65}, "max_parallel_writes must be between 1 and 64"),
        ({"max_parallel_writes": 4.0}, r"max_parallel_writes=4\.0 is of type float: give a value of type int"),
        ({"max_parallel_writes": "4"}, "max_parallel_writes='4' is of type str: give a value of type int"),
        ({"wal_ack": "at once"}, "wal_ack must be contiguous or as_landed"),
    ],
)
async def test_impossible_values_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        await shale.Db.open("db", store=MemoryStore(), **settings)


async def test_readers_and_feeds_stop_at_a_gap_and_go_on_once_it_is_filled() -> None:
    store = await crashed(max_parallel_writes=3)
    lost = wal_key("db", 8)  # the fifth file with a row, after three fences
    found = await store.get(lost)
    assert found is not None
    await store.delete(lost)
    feed = WalFeed(WalStore(store, "db"), ManifestStore(store, "db", Env.system()), Env.system())
    assert await feed.frontier_id() == 7
    async with shale.DbReader.open("db", store=store, manifest_poll_interval="10ms") as reader:
        assert [row.key async for row in reader.scan()] == [b"0", b"1", b"2", b"3"]
        await reader.refresh()
        assert len([row async for row in reader.scan()]) == 4
        await store.put(lost, bytes(found.data))
        await reader.refresh()
        assert len([row async for row in reader.scan()]) == 10
    assert await feed.frontier_id() == 13
    start = await feed.begin(Edge.EARLIEST)
    assert (await feed.end(start)).wal_id == 13


async def test_the_next_writer_fills_a_gap_and_keeps_the_files_after_it() -> None:
    store = await crashed(max_parallel_writes=3)
    await store.delete(wal_key("db", 8))
    async with shale.DbReader.open("db", store=store, manifest_poll_interval="10ms") as reader:
        async with shale.Db.open("db", store=store) as db:
            assert sorted([row.key async for row in db.scan()]) == [b"%d" % n for n in range(10) if n != 4]
        await reader.refresh()
        assert len([row async for row in reader.scan()]) == 9
    assert await wal_ids(store) == list(range(1, 17))


async def test_a_clone_inherits_the_number_and_a_union_does_not() -> None:
    store = MemoryStore()
    for path in ("db", "other"):
        async with shale.Db.open(path, store=store, max_parallel_writes=3) as db:
            await db.put(path.encode(), b"v")
            await db.flush()
    async with shale.Admin("copy", store=store) as admin:
        await admin.clones.create("db")
    async with shale.Admin("both", store=store) as admin:
        await admin.clones.create(source("db", end=b"f"), source("other", start=b"f"))
    assert (await latest(store, "copy")).max_parallel_writes == 3
    assert (await latest(store, "both")).max_parallel_writes == 1
    async with shale.Db.open("copy", store=store) as db:
        assert await db.get(b"db") == b"v"


@pytest.mark.parametrize("ack", ["contiguous", "as_landed"])
async def test_many_clients_at_once(ack: str) -> None:
    store = MemoryStore()
    async with shale.Db.open("db", store=store, flush_interval=0, max_parallel_writes=4, wal_ack=ack) as db:

        async def client(number: int) -> None:
            for turn in range(20):
                handle = await db.put(b"%d/%d" % (number, turn), b"v")
                await handle.durable()

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(client, number)
        assert db.status.durable_seq == 200
    async with shale.Db.open("db", store=store) as db:
        assert len([row async for row in db.scan()]) == 200
