"""``Db`` on a store in memory: the public behaviour."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import shale
from shale.engine.db_reader import DbReader
from shale.errors import ClosedError, FencedError, InvalidCheckpointLifetime, InvalidRequestError, UnavailableError
from shale.store.memory import MemoryStore
from shale.store.options import RetryPolicy, StoreOptions
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultPlan, FaultyStore, Rule
from tests.unit.engine.waiting import until

Scenario = Callable[[MemoryStore], Awaitable[None]]


def run(scenario: Scenario) -> None:
    anyio.run(scenario, MemoryStore())


def open_db(store: MemoryStore, **settings: Any) -> Any:
    return shale.Db.open("db", store=store, **{"flush_interval": 0, **settings})


async def contents(db: shale.Db) -> dict[bytes, bytes]:
    return {row.key: row.value async for row in db.scan()}


def test_what_was_written_is_readable_at_once_and_after_a_flush() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            handle = await db.put(b"b", bytearray(b"1"))
            assert (handle.seq, await db.get(b"b"), await db.get(memoryview(b"a"))) == (1, b"1", None)
            async with db.batch() as batch:
                batch.put(b"a", b"2")
                batch.put(b"c", b"3")
                batch.delete(b"b")
            await db.put(b"c", b"4")
            for flush in (None, "wal", "memtable"):
                if flush is not None:
                    await db.flush(flush)
                assert await contents(db) == {b"a": b"2", b"c": b"4"}
                assert await db.get_many([b"c", b"b", b"a"]) == [b"4", None, b"2"]
                row = await db.get_row(b"a")
                assert row is not None
                assert (row.seq, row.expire_ts) == (2, None)
            assert len(db.status.manifest.tree.l0) == 1
            assert db.status.manifest.last_l0_seq == db.status.last_seq == db.status.durable_seq == 3

    run(scenario)


@pytest.mark.parametrize("flush", ["memtable", "wal"])
def test_what_was_written_is_there_after_reopening(flush: str) -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            for number in range(100):
                await db.put(b"%03d" % number, b"x" * number)
            await db.delete(b"007")
            await db.close(flush)
        async with open_db(store) as db:
            assert await contents(db) == {b"%03d" % n: b"x" * n for n in range(100) if n != 7}
            assert (await db.put(b"new", b"")).seq == 102
            assert db.status.writer_epoch == 2

    run(scenario)


def test_a_scan_shows_the_state_at_its_beginning() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            for key in (b"a", b"b", b"c"):
                await db.put(key, b"old")
            rows = db.scan()
            await db.put(b"b", b"new")
            await db.flush("memtable")
            assert [row.value async for row in rows] == [b"old"] * 3
            assert [row.key async for row in db.scan(start=b"b", limit=1)] == [b"b"]
            assert [row.key async for row in db.scan(stop=b"b")] == [b"a"]
            assert [row.key async for row in db.scan(prefix=b"c")] == [b"c"]

    run(scenario)


def test_durable_waits_for_the_wal_and_shares_files() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:

            async def write(number: int) -> None:
                handle = await db.put(b"%d" % number, b"")
                await handle.durable()
                assert db.status.durable_seq >= handle.seq

            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    tasks.start_soon(write, number)
            files = [meta for meta in await store.list("db/wal/") if meta.size]
            assert 1 <= len(files) <= 5

    run(scenario)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(b"", b"", id="empty key"),
        pytest.param(b"k" * 65_536, b"", id="long key"),
        pytest.param("text", b"", id="text as key"),
        pytest.param(b"k", "text", id="text as value"),
        pytest.param(7, b"", id="a number"),
    ],
)
def test_impossible_rows_are_refused_and_nothing_is_written(key: Any, value: Any) -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            with pytest.raises(InvalidRequestError):
                await db.put(key, value)

            async def batched() -> None:
                async with db.batch() as batch:
                    batch.put(b"fine", b"")
                    batch.put(key, value)

            with pytest.raises(InvalidRequestError):
                await batched()
            assert db.status.last_seq == 0
            assert await contents(db) == {}

    run(scenario)


def test_a_closed_database_refuses_everything() -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store)
        await db.put(b"k", b"v")
        await db.close()
        await db.close()
        for call in (db.put(b"k", b"v"), db.delete(b"k"), db.get(b"k"), db.flush(), db.get_many([b"k"])):
            with pytest.raises(ClosedError):
                await call
        with pytest.raises(ClosedError):
            db.scan()

    run(scenario)


def test_an_error_inside_a_batch_block_writes_nothing() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:

            async def batched() -> None:
                async with db.batch() as batch:
                    batch.put(b"k", b"v")
                    raise KeyError

            with pytest.raises(KeyError):
                await batched()
            assert db.status.last_seq == 0

    run(scenario)


def test_many_tables_flush_in_order_and_hide_nothing() -> None:
    async def scenario(store: MemoryStore) -> None:
        settings = {"l0_sst_size_bytes": 2000, "max_unflushed_bytes": 20_000, "l0_max_ssts": 64}
        settings["l0_max_ssts_per_key"] = 64
        async with open_db(store, **settings) as db:
            for number in range(500):
                await db.put(b"%03d" % (number % 97), b"%d" % number)
                if number % 100 == 0:
                    await db.flush()
            wanted = {b"%03d" % (n % 97): b"%d" % n for n in range(500)}
            assert await contents(db) == wanted
            await db.flush("memtable")
            assert await contents(db) == wanted
            ids = [view.sst.id.ms for view in db.status.manifest.tree.l0]
            assert len(ids) > 5
            assert ids == sorted(ids, reverse=True)

    run(scenario)


def test_rows_expire_when_a_later_table_is_flushed() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"short", b"v", ttl="1ms")
            await db.put(b"long", b"v", ttl="1h")
            await anyio.sleep(0.01)
            await db.put(b"later", b"v")
            await db.flush("memtable")
            assert await db.get(b"short") is None
            row = await db.get_row(b"long")
            assert row is not None
            assert row.expire_ts - row.create_ts == 3_600_000

    run(scenario)


def test_a_checkpoint_pins_what_is_written() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"k", b"v")
            kept = await db.checkpoint(name="nightly", lifetime="7d")
            assert [entry for entry in db.status.manifest.checkpoints if entry.writer_epoch is None] == [kept]
            assert (kept.name, kept.expire_s - kept.create_s) == ("nightly", 7 * 86_400)
            assert db.status.manifest.last_l0_seq == 1
            await db.put(b"k", b"later")
            bare = await db.checkpoint(scope="durable")
            assert (bare.manifest_id, bare.expire_s, db.status.manifest.last_l0_seq) == (db.status.manifest_id, 0, 1)
            with pytest.raises(InvalidCheckpointLifetime):
                await db.checkpoint(lifetime=0)
        async with DbReader.open("db", store=store, checkpoint=kept.id) as reader:
            assert await reader.get(b"k") == b"v"

    run(scenario)


def test_who_waits_for_rows_that_a_close_gives_up_is_told() -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store, flush_interval=None)
        handle = await db.put(b"a", b"1")
        told: list[str] = []

        async def wait() -> None:
            with pytest.raises(ClosedError):
                await handle.durable()
            told.append("closed")

        with anyio.fail_after(60):
            async with anyio.create_task_group() as waiters:
                waiters.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                await db.close("none")
            with pytest.raises(ClosedError):
                await handle.durable()
        assert told == ["closed"]

    run(scenario)


def test_a_commit_beyond_the_memory_limit_does_not_stop_the_next_writer() -> None:
    sizes = {"l0_sst_size_bytes": 100_000, "max_unflushed_bytes": 200_000}

    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store, **sizes)
        async with db.batch() as batch:
            for number in range(30):
                batch.put(b"%02d" % number, bytes(10_000))
        await db.close("wal")
        async with open_db(store, **sizes) as db:
            with anyio.fail_after(60):
                await db.put(b"next", b"")
            assert len(await contents(db)) == 31

    run(scenario)


def test_an_interrupted_scan_does_not_go_on_without_the_rows_it_was_reading() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"a", b"1")
        slow = FaultyStore(store, random.Random(1))
        slow.add(Rule(op="get_range", delay_before_s=60, times=1))
        async with open_db(slow) as db:
            rows = db.scan()
            with anyio.move_on_after(0.02) as limit:
                await anext(rows)
            assert limit.cancelled_caught
            for _ in range(2):
                with pytest.raises(InvalidRequestError, match="interrupted"):
                    await anext(rows)
            assert await contents(db) == {b"a": b"1"}

    run(scenario)


def test_a_close_gives_up_flushing_where_uploads_fail_and_leaves_the_rows_in_the_wal() -> None:
    async def scenario(store: MemoryStore) -> None:
        faulty = FaultyStore(store, random.Random(1))
        faulty.add(Rule(fault=Fault.BEFORE, op="put", key_contains="compacted/", times=1_000_000))
        db = await open_db(faulty, store_options=StoreOptions(retry=RetryPolicy(retries_max=0)))
        await db.put(b"a", b"1")
        with anyio.fail_after(60):
            await db.close()
        async with open_db(store) as db:
            assert await contents(db) == {b"a": b"1"}

    run(scenario)


@pytest.mark.slow
def test_a_flush_whose_answer_was_lost_is_settled_before_anything_else_is_committed() -> None:
    async def scenario(store: MemoryStore) -> None:
        faulty = FaultyStore(store, random.Random(1))
        async with open_db(faulty, store_options=StoreOptions(retry=RetryPolicy(retries_max=0))) as db:
            await db.put(b"a", b"1")
            lost = Rule(fault=Fault.AFTER, op="put", key_contains="manifest/")
            faulty.add(lost)
            async with anyio.create_task_group() as flushing:
                flushing.start_soon(db.flush, "memtable")
                await until(lambda: not lost.times)
                checkpoint = await db.checkpoint(scope="durable")
            assert db.status.manifest.last_l0_seq == 1
            assert db.status.manifest.checkpoint(checkpoint.id) is not None
            assert len(db.status.manifest.tree.l0) == 1

    run(scenario)


def test_a_close_fails_where_the_manifest_cannot_be_written() -> None:
    async def scenario(store: MemoryStore) -> None:
        faulty = FaultyStore(store, random.Random(1))
        db = await open_db(faulty, store_options=StoreOptions(retry=RetryPolicy(retries_max=0)))
        await db.put(b"a", b"1")
        faulty.add(Rule(fault=Fault.BEFORE, op="put", key_contains="manifest/", times=1_000_000))
        with anyio.fail_after(60), pytest.raises(UnavailableError):
            await db.close()
        async with open_db(store) as db:
            assert await contents(db) == {b"a": b"1"}

    run(scenario)


@pytest.mark.slow
def test_every_close_waits_for_the_first_and_one_that_was_cut_short_is_not_forgotten() -> None:
    async def scenario(store: MemoryStore) -> None:
        slow = FaultyStore(store, random.Random(1), FaultPlan(delay_max_s=0.05))
        db = await open_db(slow)
        await db.put(b"a", b"1")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(db.close)
            await anyio.lowlevel.checkpoint()
            await db.close()
            assert db.status.durable_seq == 1
        assert isinstance(await db.status.wait_failed(), ClosedError)
        db = await open_db(slow, flush_interval=None)
        await db.put(b"b", b"1")
        slow.add(Rule(op="put", key_contains="wal/", delay_before_s=5))
        with anyio.move_on_after(0.05):
            await db.close()
        with pytest.raises(ClosedError, match="above seq 1 "):
            await db.close()

    run(scenario)


def test_calls_after_the_end_keep_no_traces_of_each_other() -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store)
        reader = await DbReader.open("db", store=store)
        await reader.close()
        await db.close()
        for handle in (db, reader):
            depths = set()
            for _ in range(3):
                with pytest.raises(ClosedError) as raised:
                    await handle.get(b"a")
                depths.add(len(raised.traceback))
            assert len(depths) == 1

    run(scenario)


class Held(FaultyStore):
    """A store that releases SSTs one by one: a started put cannot be cancelled, as in a thread."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, random.Random(1))
        self.gates: list[anyio.Event] = []

    async def put(self, key: str, *args: Any, **options: Any) -> Any:
        if "compacted/" in key:
            gate = anyio.Event()
            self.gates.append(gate)
            with anyio.CancelScope(shield=True):
                await gate.wait()
        return await super().put(key, *args, **options)


def test_a_fenced_flush_ends_everything_although_another_upload_cannot_be_cancelled() -> None:
    async def scenario(store: MemoryStore) -> None:
        held = Held(store)
        old = await open_db(held, manifest_poll_interval="1h")
        async with anyio.create_task_group() as tasks:
            for count, key in enumerate((b"a", b"b"), start=1):
                await old.put(key, b"1")
                tasks.start_soon(_fenced_flush, old)
                await until(lambda count=count: len(held.gates) == count)
            new = await open_db(store)
            held.gates[0].set()
            await until(lambda: old.status.problem is not None)
            problem = old.status.problem
            held.gates[1].set()
        await new.close()
        with pytest.raises(FencedError):
            await old.close()
        assert isinstance(problem, FencedError)

    run(scenario)


async def _fenced_flush(db: shale.Db) -> None:
    with pytest.raises(FencedError):
        await db.flush("memtable")
