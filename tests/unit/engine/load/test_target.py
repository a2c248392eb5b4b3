"""Externally built SSTs become a database or part of one, and no rows are lost."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import anyio
import pytest

import shale
from shale.engine.load import target
from shale.engine.load.target import ExistingDatabase, LoadTarget, NewDatabase
from shale.env import Env
from shale.errors import FencedError, InvalidDbState, InvalidRequestError, UnavailableError
from shale.format.names import deleting_key, manifest_key, manifest_prefix, sst_key, wal_key
from shale.kernels.rows import rows_from_entries
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.types import FLAG_CREATE_TS, Entry, Sst

ENV = Env.system()
Pairs = dict[bytes, bytes]


def run(scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    anyio.run(scenario, MemoryStore())


def open_db(store: MemoryStore, **settings: Any) -> Any:
    return shale.Db.open("db", store=store, **{"flush_interval": 0, **settings})


def create(store: MemoryStore) -> Any:
    return NewDatabase.open(store, "db", ENV, Metrics())


def take(store: MemoryStore, **settings: Any) -> Any:
    return ExistingDatabase.open(store, "db", ENV, Metrics(), **settings)


async def upload(store: MemoryStore, target: LoadTarget, pairs: Pairs) -> Sst:
    stamp = target.stamp
    entries = [Entry(key, pairs[key], stamp.seq, FLAG_CREATE_TS, stamp.create_ts) for key in sorted(pairs)]
    data, info = build_sst(rows_from_entries(entries), SstOptions(min_filter_keys=1))
    sst = Sst(id=ENV.ids.ulid(stamp.not_before_ms), info=info)
    await store.put(sst_key("db", sst.id), data)
    return sst


async def load(store: MemoryStore, target: LoadTarget, parts: Iterable[Pairs]) -> None:
    await target.commit([await upload(store, target, pairs) for pairs in parts])


async def contents(store: MemoryStore) -> Pairs:
    async with shale.DbReader.open("db", store=store) as reader:
        return {row.key: row.value async for row in reader.scan()}


def numbered(first: int, end: int, value: bytes = b"loaded") -> Pairs:
    return {b"%04d" % number: value for number in range(first, end)}


async def manifests(store: MemoryStore) -> int:
    return len(await store.list(manifest_prefix("db")))


def test_a_new_database_is_one_manifest_that_a_writer_goes_on_with() -> None:
    async def scenario(store: MemoryStore) -> None:
        target = await create(store)
        await load(store, target, [numbered(50, 90), numbered(0, 40)])
        assert await manifests(store) == 1
        assert await contents(store) == numbered(0, 40) | numbered(50, 90)
        async with open_db(store) as db:
            assert db.status.writer_epoch == 1
            assert (await db.put(b"0001", b"newer")).seq == 2
            assert (await db.get_row(b"0002")).create_ts == target.stamp.create_ts
            await db.flush("memtable")
        assert await contents(store) == numbered(0, 40) | numbered(50, 90) | {b"0001": b"newer"}

    run(scenario)


def test_nothing_exists_before_the_commit_and_no_rows_make_an_empty_database() -> None:
    async def scenario(store: MemoryStore) -> None:
        target = await create(store)
        await upload(store, target, numbered(0, 9))
        assert await manifests(store) == 0
        await target.commit([])
        assert await contents(store) == {}

    run(scenario)


def test_a_place_that_is_taken_or_destroyed_is_refused() -> None:
    async def scenario(store: MemoryStore) -> None:
        await (await open_db(store)).close()
        with pytest.raises(InvalidDbState, match="there is a database at db"):
            await create(store)
        other = MemoryStore()
        await other.put(deleting_key("db"), b"")
        with pytest.raises(InvalidDbState, match="destroyed"):
            await create(other)

    run(scenario)


def test_of_two_who_create_one_wins_and_the_other_changes_nothing() -> None:
    async def scenario(store: MemoryStore) -> None:
        first, second = await create(store), await create(store)
        await load(store, first, [numbered(0, 9)])
        with pytest.raises(InvalidDbState, match="another process created a database"):
            await load(store, second, [numbered(0, 9, b"other")])
        assert isinstance(await second.wait_until_lost(), InvalidDbState)
        assert await contents(store) == numbered(0, 9)

    run(scenario)


def test_a_store_that_is_away_for_a_while_is_no_end_of_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(store: MemoryStore) -> None:
        first, second = await create(store), await create(store)
        await load(store, first, [numbered(0, 9)])
        manifests = second._manifests
        answers = [UnavailableError("away"), await manifests.try_read_latest()]

        async def look() -> Any:
            answer = answers.pop(0)
            if isinstance(answer, UnavailableError):
                raise answer
            return answer

        monkeypatch.setattr(manifests, "try_read_latest", look)
        monkeypatch.setattr(target, "POLL_INTERVAL_S", 0.0)
        assert isinstance(await second.wait_until_lost(), InvalidDbState)

    run(scenario)


def test_keys_that_two_ssts_share_are_named() -> None:
    async def scenario(store: MemoryStore) -> None:
        target = await create(store)
        with pytest.raises(InvalidRequestError, match="0039"):
            await load(store, target, [numbered(0, 40), numbered(39, 50)])
        assert await manifests(store) == 0

    run(scenario)


@pytest.mark.parametrize("parallel_writes", [1, 4])
def test_an_append_is_newer_than_l0_and_wal(parallel_writes: int) -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store, max_parallel_writes=parallel_writes)
        await db.put(b"0001", b"old L0")
        await db.flush("memtable")
        await db.put(b"0002", b"old WAL")
        await db.put(b"0500", b"kept")
        await db.close("wal")
        target = await take(store)
        assert target.stamp.seq == 4
        await load(store, target, [numbered(0, 10), numbered(20, 30)])
        await target.close()
        expected = numbered(0, 10) | numbered(20, 30) | {b"0500": b"kept"}
        assert await contents(store) == expected
        async with open_db(store) as db:
            assert (await db.put(b"0003", b"newest")).seq == 5
            assert {row.key: row.value async for row in db.scan()} == expected | {b"0003": b"newest"}
        assert await contents(store) == expected | {b"0003": b"newest"}

    run(scenario)


def test_an_append_after_a_crash_with_files_in_flight_fills_the_gap() -> None:
    """The fences of the load fill it, so the rows of later files are flushed, and all processes see the same rows."""

    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store, max_parallel_writes=3)
        for key in (b"0500", b"0501", b"0502"):
            await (await db.put(key, b"kept")).durable()
        left = MemoryStore()
        left.objects.update(store.objects)
        await db.close()
        del left.objects[wal_key("db", 5)]
        with pytest.raises(InvalidDbState, match="has not closed"):
            await take(left)
        target = await take(left, fence=True)
        await load(left, target, [numbered(0, 10)])
        await target.close()
        expected = numbered(0, 10) | {b"0500": b"kept", b"0502": b"kept"}
        assert await contents(left) == expected
        async with open_db(left) as db:
            assert {row.key: row.value async for row in db.scan()} == expected

    run(scenario)


def test_a_second_append_hides_the_first() -> None:
    async def scenario(store: MemoryStore) -> None:
        target = await create(store)
        await load(store, target, [numbered(0, 10, b"1")])
        for value in (b"2", b"3"):
            target = await take(store)
            await load(store, target, [numbered(3, 7, value)])
            await target.close()
        assert await contents(store) == numbered(0, 10, b"1") | numbered(3, 7, b"3")

    run(scenario)


def test_an_append_that_is_given_up_changes_no_row() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"0001", b"before")
        target = await take(store)
        await upload(store, target, numbered(0, 10))
        await target.close()
        assert await contents(store) == {b"0001": b"before"}

    run(scenario)


def test_where_nothing_is_an_append_makes_nothing() -> None:
    async def scenario(store: MemoryStore) -> None:
        with pytest.raises(InvalidDbState, match="no database"):
            await take(store)
        assert await manifests(store) == 0

    run(scenario)


@pytest.mark.parametrize("state", ["fresh", "rows in the WAL", "rows in L0", "all flushed", "after a checkpoint"])
def test_a_writer_that_runs_is_fenced_only_on_request(state: str) -> None:
    async def scenario(store: MemoryStore) -> None:
        before = await open_db(store)
        await before.put(b"0001", b"earlier")
        await before.close()
        db = await open_db(store)
        if state != "fresh":
            await (await db.put(b"0002", b"alive")).durable()
        if state in ("rows in L0", "all flushed", "after a checkpoint"):
            await db.flush("memtable")
        if state == "rows in L0":
            await (await db.put(b"0003", b"alive")).durable()
        if state == "after a checkpoint":
            await db.checkpoint(name="x", lifetime="1h")
        with pytest.raises(InvalidDbState, match="writer epoch 2 has not closed"):
            await take(store)
        await (await db.put(b"0004", b"still alive")).durable()
        target = await take(store, fence=True)
        with pytest.raises(FencedError):
            await (await db.put(b"0005", b"dead")).durable()
        await load(store, target, [numbered(100, 110)])
        await target.close()
        found = await contents(store)
        assert found[b"0004"] == b"still alive"
        assert found.items() >= numbered(100, 110).items()

    run(scenario)


def test_a_closed_writer_whose_last_versions_were_collected_may_be_alive() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"0001", b"earlier")
        for version in range(1, await manifests(store)):
            await store.delete(manifest_key("db", version))
        with pytest.raises(InvalidDbState, match="not known any more"):
            await take(store)

    run(scenario)


def test_checkpoints_do_not_hide_that_the_writer_closed() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"0001", b"earlier")
        async with shale.DbReader.open("db", store=store) as reader:
            assert await reader.get(b"0001") == b"earlier"
        await (await take(store)).close()

    run(scenario)


def test_a_writer_that_takes_over_during_a_load_keeps_the_database() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"0001", b"earlier")
        target = await take(store)
        sst = await upload(store, target, numbered(0, 10))
        async with open_db(store) as db:
            await db.put(b"0001", b"later")
            assert isinstance(await target.wait_until_lost(), FencedError)
            with pytest.raises(FencedError):
                await target.commit([sst])
        await target.close()
        assert await contents(store) == {b"0001": b"later"}

    run(scenario)


def test_rows_of_the_wal_that_find_no_room_in_l0_end_the_load() -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store)
        for number in range(8):
            await db.put(b"%04d" % number, b"x")
            await db.flush("memtable")
        await db.put(b"0009", b"in the WAL")
        await db.close("wal")
        with pytest.raises(UnavailableError, match="L0 is full"):
            await take(store, l0_wait_s=0.05)
        assert (await contents(store))[b"0009"] == b"in the WAL"

    run(scenario)
