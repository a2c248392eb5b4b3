"""Merges, lifetimes and sequence numbers on their way through ``Db``: memory, WAL, flush, reopening."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

import shale
from shale.errors import (
    IncompatibleMergeTtls,
    InvalidRequestError,
    InvalidSequenceNumber,
    MergeOperatorFailed,
    MergeOperatorMissing,
    ShaleError,
)
from shale.store.memory import MemoryStore

Scenario = Callable[[MemoryStore], Awaitable[None]]


def run(scenario: Scenario) -> None:
    anyio.run(scenario, MemoryStore())


def open_db(store: MemoryStore, **settings: Any) -> Any:
    return shale.Db.open("db", store=store, **{"flush_interval": 0, "merge_operator": "concatenate", **settings})


async def contents(db: shale.Db) -> dict[bytes, bytes]:
    return {row.key: row.value async for row in db.scan()}


@pytest.mark.parametrize("reopen", [None, "wal", "memtable"])
@pytest.mark.parametrize("flush", [None, "wal", "memtable"])
def test_operands_are_folded_wherever_they_are(flush: str | None, reopen: str | None) -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store)
        await db.put(b"value", b"0")
        await db.delete(b"gone")
        await db.put(b"hidden", b"0")
        for round_ in range(3):
            for key in (b"value", b"gone", b"new", b"hidden"):
                handle = await db.merge(key, b"%d" % (round_ + 1))
            if flush is not None:
                await db.flush(flush)
            if reopen is not None:
                await db.close(reopen)
                db = await open_db(store)
        await db.put(b"hidden", b"9")
        await db.merge(b"hidden", bytearray(b"!"))
        expected = {b"gone": b"123", b"hidden": b"9!", b"new": b"123", b"value": b"0123"}
        assert await contents(db) == expected
        assert await db.get_many(list(expected)) == list(expected.values())
        row = await db.get_row(b"new")
        assert row is not None
        assert (row.value, row.seq) == (b"123", handle.seq - 1)
        await db.close()

    run(scenario)


def test_many_operands_of_one_key_are_read_without_sorting_the_table() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, merge_operator="int_add") as db:
            for number in range(1, 251):
                await db.merge(b"sum", number.to_bytes(8, "little"))
                if number % 50 == 0:
                    value = await db.get(b"sum")
                    assert int.from_bytes(value, "little") == number * (number + 1) // 2
            table = db._pipeline.buffers.active
            assert table.sorted_log.has_long_tail or not table.sorted_log._parts

    run(scenario)


def test_a_batch_folds_what_it_has_for_one_key() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"below", b"0")
            batch = shale.WriteBatch()
            for key in (b"over", b"put"):
                batch.merge(key, b"lost")
            batch.delete(b"over")
            batch.put(b"put", b"1")
            for key in (b"below", b"new", b"over", b"put"):
                batch.merge(key, b"a")
                batch.merge(key, b"b")
            batch.merge(b"one", b"x")
            batch.delete(b"last")
            assert (len(batch), b"new" in batch, b"last" in batch) == (6, True, True)
            handle = await db.write(batch)
            expected = {b"below": b"0ab", b"new": b"ab", b"one": b"x", b"over": b"ab", b"put": b"1ab"}
            for flush in (None, "wal", "memtable"):
                if flush is not None:
                    await db.flush(flush)
                assert await contents(db) == expected
                assert (await db.get_row(b"over")).seq == handle.seq == 2
            kinds = {entry.key: entry.flags for entry in await stored(db)}
            assert [key for key, flags in kinds.items() if flags & 8] == [b"new", b"one"]

    run(scenario)


async def stored(db: shale.Db) -> list[Any]:
    """Return the rows of the only L0."""
    from shale.iter.source import drain
    from shale.kernels.rows import entries_from_rows
    from shale.sst.source import SstViewsSource

    view = db._writer.views.view
    (sst,) = db.status.manifest.tree.l0
    return [entry for rows in await drain(SstViewsSource(view.reader, (sst,))) for entry in entries_from_rows(rows)]


def test_refused_merges_change_nothing_and_use_a_number_as_in_slatedb() -> None:
    def failing(_key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
        if b"bad" in operands:
            raise ValueError
        return b"".join([existing or b"", *operands])

    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, merge_operator=failing) as db:
            await db.put(b"k", b"0")
            for mixed in (
                lambda batch: batch.put(b"k", b"1"),
                lambda batch: batch.delete(b"k"),
                lambda batch: batch.merge(b"k", b"2", ttl="1h"),
            ):
                batch = shale.WriteBatch()
                mixed(batch)
                batch.merge(b"k", b"3", ttl="2h")
                with pytest.raises(IncompatibleMergeTtls, match="several lifetimes"):
                    await db.write(batch)
            with pytest.raises(MergeOperatorFailed, match="raised ValueError"):
                await db.merge(b"k", b"bad")
            batch = shale.WriteBatch()
            batch.merge(b"k", b"bad")
            with pytest.raises(MergeOperatorFailed, match="raised ValueError"):
                await db.write(batch)
            assert (db.status.last_seq, await contents(db)) == (1, {b"k": b"0"})
            await db.flush("wal")
            await db.flush("memtable")
            assert (await db.put(b"k", b"6")).seq == 6

    run(scenario)


def test_without_an_operator_nothing_is_merged() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, merge_operator=None) as db:
            with pytest.raises(MergeOperatorMissing):
                await db.merge(b"k", b"1")
            batch = shale.WriteBatch()
            batch.put(b"other", b"1")
            batch.merge(b"k", b"1")
            with pytest.raises(MergeOperatorMissing):
                await db.write(batch)
            assert await contents(db) == {}
        with pytest.raises(InvalidRequestError, match="no merge operator is called"):
            await open_db(store, merge_operator="no_such")

    run(scenario)


def test_every_write_takes_a_lifetime() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, default_ttl="1h") as db:
            batch = shale.WriteBatch()
            batch.put(b"batch", b"", expire_at=77)
            batch.merge(b"batch merge", b"", ttl=5)
            batch.merge(b"batch merge", b"", ttl=5)
            batch.merge(b"batch default", b"")
            batch.put(b"batch never", b"", ttl=shale.NEVER)
            handles = {
                b"default": await db.put(b"default", b""),
                b"never": await db.put(b"never", b"", ttl=shale.NEVER),
                b"at": await db.put(b"at", b"", expire_at=-7),
                b"merge": await db.merge(b"merge", b"", ttl="1s"),
                b"merge default": await db.merge(b"merge default", b""),
                b"batch": await db.write(batch),
            }
            for kind in (None, "wal", "memtable"):
                if kind is not None:
                    await db.flush(kind)
                if kind == "memtable":  # the table's last commit is after these
                    for key in (b"at", b"batch"):
                        assert await db.get(key) is None
                rows = {row.key: row.expire_ts and row.expire_ts - row.create_ts async for row in db.scan()}
                expected = {
                    b"batch default": 3_600_000,
                    b"batch merge": 5_000,
                    b"batch never": None,
                    b"default": 3_600_000,
                    b"merge": 1_000,
                    b"merge default": 3_600_000,
                    b"never": None,
                }
                if kind != "memtable":
                    expected[b"at"] = -7 - handles[b"at"].create_ts
                    expected[b"batch"] = 77 - handles[b"batch"].create_ts
                assert rows == expected

    run(scenario)


def test_numbers_chosen_by_the_caller() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            batch = shale.WriteBatch()
            batch.put(b"k", b"1")
            assert (await db.write(batch, seq=10)).seq == 10
            for wrong in (10, 3):
                with pytest.raises(InvalidSequenceNumber):
                    await db.write(batch, seq=wrong)
            for impossible in (0, -1, 1 << 63, True, "11"):
                with pytest.raises(InvalidRequestError):
                    await db.write(batch, seq=impossible)  # type: ignore[arg-type]
            assert (await db.put(b"k", b"2")).seq == 11
            assert (await db.write(batch, seq=(1 << 63) - 1)).seq == (1 << 63) - 1
            await db.flush("wal")
        async with open_db(store) as db:
            assert (await db.put(b"k", b"3")).seq == 1 << 63
            await db.flush("memtable")
            assert await contents(db) == {b"k": b"3"}

    run(scenario)


@pytest.mark.parametrize("value_bytes", [5, 1 << 20])
def test_what_a_flush_cannot_fold_is_kept(value_bytes: int) -> None:
    """Otherwise two calls of a client would end the writer, and every later writer that replays them."""
    bad = bytes(value_bytes)

    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, merge_operator="int_add", l0_sst_size_bytes=64 << 20) as db:
            for number in range(20):
                await db.put(b"k%02d" % number, bad)
            await db.put(b"n", (5).to_bytes(8, "little"))
            await db.merge(b"k19", (1).to_bytes(8, "little"))
            await db.merge(b"n", (1).to_bytes(8, "little"))
            await db.flush("memtable")
            with pytest.raises(MergeOperatorFailed):
                await db.get(b"k19")
            assert await db.get_many([b"k18", b"n"]) == [bad, (6).to_bytes(8, "little")]
        async with open_db(store, merge_operator="concatenate") as db:
            assert await db.get(b"k19") == bad + (1).to_bytes(8, "little")
            await db.put(b"k19", bad)
        async with open_db(store, merge_operator="int_add") as db:
            assert await db.get(b"k19") == bad

    run(scenario)


def test_a_batch_that_was_emptied_meanwhile_is_no_commit() -> None:
    """A commit without rows is in no file: a wait for it, or for a flush, would never end."""

    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, flush_interval=None) as db:
            batch = shale.WriteBatch()
            batch.put(b"k", b"1")

            async def write() -> None:
                with pytest.raises(InvalidRequestError, match="emptied"):
                    await db.write(batch)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write)
                await anyio.lowlevel.checkpoint()
                batch.clear()
            with anyio.fail_after(60):
                await db.flush("memtable")
            assert await contents(db) == {}

    run(scenario)


@pytest.mark.parametrize("impossible", [1.5, "11", 1 << 64])
def test_a_refused_number_leaves_no_trace(impossible: Any) -> None:
    """A number in the tracker would end the writer at the next flush, or map to wrong times."""

    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            batch = shale.WriteBatch()
            batch.put(b"k", b"1")
            with pytest.raises(InvalidRequestError):
                await db.write(batch, seq=impossible)
            handle = await db.put(b"k", b"2")
            await db.flush("memtable")
            assert handle.seq == 1
            assert db.status.seq_at(handle.create_ts) == 1

    run(scenario)


def test_single_writes_take_chosen_numbers() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            assert (await db.put(b"k", b"1", seq=10)).seq == 10
            assert (await db.merge(b"k", b"+", seq=20)).seq == 20
            assert (await db.delete(b"gone", seq=30)).seq == 30
            assert (await db.put(b"l", b"2", ttl="1d", seq=40)).seq == 40
            for wrong in (40, 3):
                for write in (
                    db.put(b"k", b"x", seq=wrong),
                    db.merge(b"k", b"x", seq=wrong),
                    db.delete(b"k", seq=wrong),
                ):
                    with pytest.raises(InvalidSequenceNumber):
                        await write
            for impossible in (0, -1, 1 << 63, True, "41"):
                with pytest.raises(InvalidRequestError):
                    await db.delete(b"k", seq=impossible)  # type: ignore[arg-type]
            assert (await db.put(b"m", b"3")).seq == 41
            await db.flush("wal")
        async with open_db(store) as db:
            rows = [await db.get_row(key) for key in (b"k", b"l", b"m")]
            assert [(row.value, row.seq) for row in rows if row is not None] == [(b"1+", 20), (b"2", 40), (b"3", 41)]

    run(scenario)


def test_errors_have_the_kinds_of_slatedb() -> None:
    for error in (IncompatibleMergeTtls, InvalidSequenceNumber, MergeOperatorMissing):
        assert issubclass(error, ShaleError)
        assert error.kind == "invalid"
