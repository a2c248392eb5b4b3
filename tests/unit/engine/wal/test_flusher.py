"""The WAL flusher alone: when it writes a file, and what it advances."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from shale.engine.wal.flusher import WalFlusher
from shale.engine.wal.replay import wal_rows
from shale.engine.write.batch import WriteBatch
from shale.errors import FencedError, ProtocolPanic, UnavailableError
from shale.protocol.wal_store import WalStore
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from tests.unit.engine.writer_parts import Parts, make_flusher, make_parts


def with_flusher(
    scenario: Callable[[Parts, WalFlusher, WalStore], Awaitable[None]], **options: Any
) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        parts = await make_parts(**options)
        store = WalStore(parts.store, "db")
        flusher = make_flusher(WalFlusher, parts, store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flusher.run)
            with anyio.fail_after(60):
                await scenario(parts, flusher, store)
            tasks.cancel_scope.cancel()

    return run


def test_a_request_writes_all_rows_as_one_file() -> None:
    async def scenario(parts: Parts, flusher: WalFlusher, store: WalStore) -> None:
        for key in (b"a", b"b"):
            handle = await parts.pipeline.put(key, b"v")
        flusher.request()
        await parts.durability.wait_durable(handle.seq)
        assert parts.durability.durable_wal_id == 2
        async for wal_id, rows in wal_rows(store, 2, 2, parts.env):
            assert wal_id == 2
            assert rows is not None
            assert [rows.key(place) for place in range(len(rows))] == [b"a", b"b"]

    anyio.run(with_flusher(scenario, flush_interval_s=None))


def test_the_timer_flushes_without_a_request() -> None:
    async def scenario(parts: Parts, flusher: WalFlusher, _store: WalStore) -> None:
        handle = await parts.pipeline.put(b"k", b"v")
        flusher.start_timer()
        await parts.durability.wait_durable(handle.seq)

    anyio.run(with_flusher(scenario, flush_interval_s=0.01))


def test_a_waiter_after_a_pause_does_not_wait_for_the_timer() -> None:
    async def scenario(parts: Parts, flusher: WalFlusher, _store: WalStore) -> None:
        handle = await parts.pipeline.put(b"k", b"v")
        flusher.start_timer()
        flusher.flush_for_waiter()
        await parts.durability.wait_durable(handle.seq)

    anyio.run(with_flusher(scenario, flush_interval_s=3600))


@pytest.mark.parametrize("first", ["request", "flush_for_waiter"])
def test_a_waiter_shortly_after_a_flush_waits_for_the_interval(first: str) -> None:
    async def scenario(parts: Parts, flusher: WalFlusher, _store: WalStore) -> None:
        before = await parts.pipeline.put(b"a", b"v")
        flusher.start_timer()
        getattr(flusher, first)()
        await parts.durability.wait_durable(before.seq)
        after = await parts.pipeline.put(b"b", b"v")
        flusher.start_timer()
        flusher.flush_for_waiter()
        await anyio.wait_all_tasks_blocked()
        assert parts.durability.durable_seq == before.seq
        flusher.request()
        await parts.durability.wait_durable(after.seq)

    anyio.run(with_flusher(scenario, flush_interval_s=3600))


def test_a_waiter_flushes_nothing_without_an_interval() -> None:
    async def scenario(parts: Parts, flusher: WalFlusher, _store: WalStore) -> None:
        await parts.pipeline.put(b"k", b"v")
        flusher.start_timer()
        flusher.flush_for_waiter()
        await anyio.wait_all_tasks_blocked()
        assert parts.durability.durable_seq == 0

    anyio.run(with_flusher(scenario, flush_interval_s=None))


def test_without_an_interval_only_a_request_flushes() -> None:
    async def scenario(parts: Parts, flusher: WalFlusher, _store: WalStore) -> None:
        await parts.pipeline.put(b"k", b"v")
        flusher.start_timer()
        await anyio.sleep(0.05)
        assert parts.durability.durable_seq == 0

    anyio.run(with_flusher(scenario, flush_interval_s=None))


def test_a_file_is_closed_at_its_size_and_written_without_a_request() -> None:
    async def scenario(parts: Parts, flusher: WalFlusher, store: WalStore) -> None:
        for number in range(100):
            handle = await parts.pipeline.put(b"%02d" % number, bytes(100))
            if parts.listener.calls[-1] == "wal file pending":
                flusher.wake()
        flusher.request()
        await parts.durability.wait_durable(handle.seq)
        counts = []
        async for _, rows in wal_rows(store, 2, parts.durability.durable_wal_id, parts.env):
            assert rows is not None
            counts.append(len(rows))
        assert counts == [8] * 12 + [4], "130 bytes a row, closed by the row that reaches 1,000"

    anyio.run(with_flusher(scenario, flush_interval_s=None, wal_flush_bytes=1000))


def test_a_commit_larger_than_a_file_is_not_split() -> None:
    async def scenario(parts: Parts, flusher: WalFlusher, store: WalStore) -> None:
        batch = WriteBatch()
        for number in range(10):
            batch.put(b"%d" % number, bytes(500))
        handle = await parts.pipeline.write(batch)
        flusher.wake()
        await parts.durability.wait_durable(handle.seq)
        assert parts.durability.durable_wal_id == 2
        async for _, rows in wal_rows(store, 2, 2, parts.env):
            assert rows is not None
            assert len(rows) == 10

    anyio.run(with_flusher(scenario, flush_interval_s=None, wal_flush_bytes=1000))


def test_an_id_that_another_writer_of_the_same_epoch_took_is_a_panic() -> None:
    async def run() -> None:
        parts = await make_parts(flush_interval_s=None)
        store = WalStore(parts.store, "db")
        await store.put_or_raise_fenced(2, b"rows", epoch=parts.manifest.epoch)
        flusher = make_flusher(WalFlusher, parts, store)
        await parts.pipeline.put(b"k", b"v")
        flusher.request()
        with pytest.raises(ProtocolPanic, match="same epoch"), anyio.fail_after(60):
            await flusher.run()
        assert parts.durability.durable_seq == 0

    anyio.run(run)


def test_a_taken_id_fences_and_acknowledges_nothing() -> None:
    async def run() -> None:
        parts = await make_parts(flush_interval_s=None)
        store = WalStore(parts.store, "db")
        await parts.store.put(store.key(2), b"")  # the fence of a newer writer
        flusher = make_flusher(WalFlusher, parts, store)
        await parts.pipeline.put(b"k", b"v")
        flusher.request()
        with pytest.raises(FencedError), anyio.fail_after(60):
            await flusher.run()
        assert (parts.durability.durable_seq, parts.durability.durable_wal_id) == (0, 1)

    anyio.run(run)


def test_a_file_that_the_store_refuses_is_logged_with_its_rows(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        parts = await make_parts(flush_interval_s=None)
        faulty = FaultyStore(parts.store, random.Random(0))
        faulty.add(Rule(op="put", key_contains="/wal/", fault=Fault.BEFORE))
        flusher = make_flusher(WalFlusher, parts, WalStore(faulty, "db"))
        await parts.pipeline.put(b"k", b"v")
        flusher.request()
        with pytest.raises(UnavailableError), anyio.fail_after(60):
            await flusher.run()

    anyio.run(run)
    (line,) = [record.getMessage() for record in caplog.records if "wal.flush.failed" in record.getMessage()]
    assert "'wal_id': 2" in line
    assert "'last_seq': 1" in line
