"""Transactions: reads, writes and conflicts."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pyarrow as pa
import pytest

import shale
from shale.engine.txn.transaction import Transaction
from shale.errors import (
    ClosedError,
    IncompatibleMergeTtls,
    InvalidRequestError,
    InvalidSequenceNumber,
    MergeOperatorMissing,
    TransactionConflict,
)
from shale.store.memory import MemoryStore

Scenario = Callable[[shale.Db], Awaitable[None]]
Steps = Callable[[Transaction], Awaitable[object]]


def run(scenario: Scenario, **settings: Any) -> None:
    options = {"flush_interval": None, "merge_operator": "concatenate", **settings}

    async def with_db() -> None:
        async with shale.Db.open("db", store=MemoryStore(), **options) as db:
            await scenario(db)

    anyio.run(with_db)


async def contents(reads: Any, **options: Any) -> dict[bytes, bytes]:
    return {row.key: row.value async for row in reads.scan(**options)}


async def fill(db: shale.Db, keys: bytes = b"abcdef") -> None:
    async with db.batch() as batch:
        for key in keys:
            batch.put(bytes([key]), b"0")


@pytest.mark.parametrize("flush", [None, "wal", "memtable"])
def test_only_the_transaction_sees_its_own_writes(flush: str | None) -> None:
    async def scenario(db: shale.Db) -> None:
        await fill(db)
        before = await contents(db)
        transaction = await db.transaction()
        await db.put(b"e", b"other")
        await db.delete(b"f")
        if flush is not None:
            await db.flush(flush)
        transaction.put(b"a", b"1")
        transaction.delete(b"b")
        for operand in (b"1", b"2"):
            transaction.merge(b"c", operand)
            transaction.merge(b"new", operand)
        transaction.delete(b"d")
        transaction.merge(b"d", b"!")
        transaction.put(b"zz", b"1")
        transaction.merge(b"zz", b"2")
        expected = {b"a": b"1", b"c": b"012", b"d": b"!", b"e": b"0", b"f": b"0", b"new": b"12", b"zz": b"12"}
        keys = [*expected, b"b", b"none"]
        assert await contents(transaction) == expected
        assert await contents(transaction, reverse=True) == dict(reversed(expected.items()))
        assert await contents(transaction, prefix=b"n") == {b"new": b"12"}
        assert list(await contents(transaction, start=b"b", stop=b"e", limit=2)) == [b"c", b"d"]
        assert await transaction.get_many(keys) == [expected.get(key) for key in keys]
        assert [await transaction.get(key) for key in keys] == [expected.get(key) for key in keys]
        own, below = await transaction.get_row(b"a"), await transaction.get_row(b"e")
        assert (own.seq, own.create_ts) == (2**64 - 1, None)
        assert (below.seq, transaction.seq) == (1, 1)
        assert {**before, b"e": b"other"}.items() >= (await contents(db)).items()
        handle = await transaction.commit()
        assert handle.seq == 4
        del expected[b"f"]
        for kind in (None, "wal", "memtable"):
            if kind is not None:
                await db.flush(kind)
            assert await contents(db) == {**expected, b"e": b"other"}
        assert (await db.get_row(b"c")).seq == 4

    run(scenario)


def test_own_writes_expire_as_they_will_after_the_commit() -> None:
    async def scenario(db: shale.Db) -> None:
        transaction = await db.transaction()
        transaction.put(b"past", b"1", expire_at=7)
        transaction.put(b"later", b"1", ttl="1h")
        transaction.put(b"default", b"1")
        transaction.put(b"never", b"1", ttl=shale.NEVER)
        transaction.merge(b"merged", b"1", expire_at=7)
        rows = {row.key: row async for row in transaction.scan()}
        assert rows[b"past"].expire_ts == rows[b"merged"].expire_ts == 7
        assert rows[b"never"].expire_ts is None
        later, default = rows[b"later"].expire_ts, rows[b"default"].expire_ts
        assert later is not None
        assert default is not None
        assert default < later
        shown = {b"later": b"1", b"default": b"1", b"never": b"1"}
        assert await contents(transaction, hide_expired=True) == shown
        assert await transaction.get(b"past", hide_expired=True) is None
        assert await transaction.get(b"merged", hide_expired=True) is None
        assert await transaction.get(b"past") == b"1"
        await transaction.commit()
        assert await contents(db, hide_expired=True) == shown

    run(scenario, default_ttl_ms=60_000)


def test_a_scan_shows_the_writes_that_were_there_when_it_was_made() -> None:
    async def scenario(db: shale.Db) -> None:
        await fill(db, b"ac")
        transaction = await db.transaction()
        transaction.put(b"b", b"1")
        rows = transaction.scan()
        transaction.put(b"b", b"2")
        transaction.put(b"bb", b"2")
        assert [row.value async for row in rows] == [b"0", b"1", b"0"]
        assert await contents(transaction) == {b"a": b"0", b"b": b"2", b"bb": b"2", b"c": b"0"}
        scan = transaction.scan()
        await scan.seek(b"bb")
        assert [row.key async for row in scan] == [b"bb", b"c"]

    run(scenario)


async def _made(_value: object) -> None:
    return


async def _own_then_scan(tx: Transaction) -> None:
    tx.put(b"ca", b"1")
    assert list(await contents(tx, start=b"ca", limit=2)) == [b"ca", b"d"]


READS: dict[str, Steps] = {
    "get": lambda tx: tx.get(b"c"),
    "get of an absent key": lambda tx: tx.get(b"cc"),
    "get_row": lambda tx: tx.get_row(b"c"),
    "get_many": lambda tx: tx.get_many([b"a", b"c"]),
    "scan": lambda tx: contents(tx, start=b"b", stop=b"d"),
    "scan backward": lambda tx: contents(tx, start=b"b", stop=b"d", reverse=True),
    "scan by prefix": lambda tx: contents(tx, prefix=b"c"),
    "scan of everything": contents,
    "scan to a limit": lambda tx: contents(tx, start=b"b", limit=2),
    "scan backward to a limit": lambda tx: contents(tx, stop=b"e", limit=2, reverse=True),
    "scan of own writes": _own_then_scan,
    "first row of a scan": lambda tx: anext(tx.scan(start=b"b")),
    "unread scan": lambda tx: _made(tx.scan(start=b"b", stop=b"d")),
    "mark_read": lambda tx: _made(tx.mark_read([b"x", b"c"])),
}


@pytest.mark.parametrize(
    ("read", "written", "conflicts"),
    [
        ("get", b"c", True),
        ("get", b"cc", False),
        ("get of an absent key", b"cc", True),
        ("get_row", b"c", True),
        ("get_many", b"c", True),
        ("get_many", b"b", False),
        ("scan", b"c", True),
        ("scan", b"bb", True),
        ("scan", b"b", True),
        ("scan", b"d", False),
        ("scan backward", b"c0", True),
        ("scan backward", b"a", False),
        ("scan by prefix", b"cc", True),
        ("scan by prefix", b"d", False),
        ("scan of everything", b"zzz", True),
        ("scan to a limit", b"c", True),
        ("scan to a limit", b"bb", True),
        ("scan to a limit", b"c0", False),
        ("scan backward to a limit", b"c", True),
        ("scan backward to a limit", b"d0", True),
        ("scan backward to a limit", b"b0", False),
        ("scan of own writes", b"d", True),
        ("scan of own writes", b"d0", False),
        ("first row of a scan", b"f", True),
        ("unread scan", b"c", True),
        ("mark_read", b"c", True),
        ("mark_read", b"d", False),
    ],
)
@pytest.mark.parametrize("flush", [None, "memtable"])
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_what_was_read_conflicts_with_writes(
    isolation: str, flush: str | None, read: str, written: bytes, conflicts: bool
) -> None:
    """Serializable transactions depend on what they read, also on absent keys; others on what they mark."""

    async def scenario(db: shale.Db) -> None:
        await fill(db)
        for writes in (True, False):
            transaction = await db.transaction(isolation)
            await READS[read](transaction)
            if writes:
                transaction.put(b"unrelated", b"1")
            await db.put(written, b"2")
            if flush is not None:
                await db.flush(flush)
                await db.put(b"zzzz", b"3")
            expected = conflicts and (isolation == "serializable" or read == "mark_read")
            if expected:
                with pytest.raises(TransactionConflict):
                    await transaction.commit()
            else:
                handle = await transaction.commit()
                assert (handle is not None) == (writes or read == "scan of own writes")
            assert db.status.open_snapshots == 0

    run(scenario)


@pytest.mark.parametrize(
    ("steps", "conflicts"),
    [
        pytest.param(lambda tx: tx.put(b"a", b"1"), True, id="put"),
        pytest.param(lambda tx: tx.delete(b"a"), True, id="delete"),
        pytest.param(lambda tx: tx.merge(b"a", b"1"), True, id="merge"),
        pytest.param(lambda tx: tx.put(b"b", b"1"), False, id="another key"),
        pytest.param(lambda tx: (tx.put(b"a", b"1"), tx.unmark_write([b"a"])), False, id="unmarked"),
        pytest.param(lambda tx: (tx.unmark_write([b"a"]), tx.put(b"a", b"1")), False, id="unmarked before"),
        pytest.param(
            lambda tx: (tx.put(b"a", b"1"), tx.unmark_write([b"a"]), tx.mark_read([b"a"])), True, id="unmarked but read"
        ),
    ],
)
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("other", ["put", "delete", "merge", "batch", "columns", "transaction"])
def test_writes_conflict_with_writes(isolation: str, other: str, steps: Any, conflicts: bool) -> None:
    async def scenario(db: shale.Db) -> None:
        await fill(db)
        transaction = await db.transaction(isolation)
        steps(transaction)
        if other == "put":
            await db.put(b"a", b"2")
        elif other == "delete":
            await db.delete(b"a")
        elif other == "merge":
            await db.merge(b"a", b"2")
        elif other == "batch":
            async with db.batch() as batch:
                batch.delete(b"a")
        elif other == "columns":
            await db.write_arrow(pa.table({"key": [b"A", b"a"], "value": [b"", b"2"]}))
        else:
            async with db.transaction() as second:
                second.put(b"a", b"2")
        after = await contents(db)
        if conflicts:
            with pytest.raises(TransactionConflict, match="since seq 1"):
                await transaction.commit()
            assert await contents(db) == after
            # A commit that was refused has used up its number, as in SlateDB.
            assert (await db.put(b"next", b"")).seq == 4
            await db.flush("wal")
        else:
            assert (await transaction.commit()).seq == 3

    run(scenario)


@pytest.mark.parametrize("flush", [None, "memtable"])
def test_rows_that_came_as_columns_are_phantoms_too(flush: str | None) -> None:
    async def scenario(db: shale.Db) -> None:
        await fill(db)
        await db.write_arrow(pa.table({"key": [b"bb", b"bc"], "value": [b"", b""]}))
        above, below = await db.transaction("serializable"), await db.transaction("serializable")
        assert list(await contents(above, start=b"b", stop=b"d")) == [b"b", b"bb", b"bc", b"c"]
        assert list(await contents(below, stop=b"b")) == [b"a"]
        await db.write_arrow(pa.table({"key": [b"bcc", b"z"], "value": [b"", b""]}))
        await db.put(b"zz", b"")
        if flush is not None:
            await db.flush(flush)
            await db.put(b"zzz", b"")
        await below.commit()
        with pytest.raises(TransactionConflict):
            await above.commit()

    run(scenario)


def test_an_unmarked_write_is_no_conflict_for_others_either() -> None:
    async def scenario(db: shale.Db) -> None:
        for first_tracked in (False, True):
            async with db.transaction("serializable") as reader:
                await reader.get(b"u")
                await contents(reader, prefix=b"u")
                late = await db.transaction()
                if first_tracked:
                    await db.put(b"u", b"0")
                async with db.transaction() as writer:
                    writer.put(b"u", b"1")
                    writer.unmark_write([b"u"])
                assert await db.get(b"u") == b"1"
                late.put(b"u", b"2")
                reader.put(b"v", b"2")
                if first_tracked:
                    for transaction in (late, reader):
                        with pytest.raises(TransactionConflict):
                            await transaction.commit()
                else:
                    await late.rollback()
                    await reader.commit()

    run(scenario)


def test_only_what_happened_meanwhile_conflicts() -> None:
    """Older commits do not, also in the same memtable, and neither does an open transaction."""

    async def scenario(db: shale.Db) -> None:
        long = await db.transaction("serializable")
        await long.get(b"k")
        for round_ in range(30):
            async with db.transaction("serializable") as tx:
                count = int(await tx.get(b"k") or b"0")
                tx.put(b"k", b"%d" % (count + 1))
            if round_ % 7 == 3:
                await db.flush("memtable")
        assert await db.get(b"k") == b"30"
        with pytest.raises(TransactionConflict):
            await long.commit()
        assert db.status.transaction_history_bytes == 0

    run(scenario)


def test_of_flushed_memtables_only_keys_are_kept_while_a_transaction_is_open() -> None:
    async def scenario(db: shale.Db) -> None:
        transaction = await db.transaction("serializable")
        await contents(transaction, prefix=b"k3")
        for number in range(5):
            await db.put(b"k%d" % number, b"v" * 1000)
            await db.flush("memtable")
        await db.put(b"last", b"")
        assert 10 <= db.status.transaction_history_bytes < 200, "no values"
        with pytest.raises(TransactionConflict):
            await transaction.commit()

    run(scenario)


async def fail(db: shale.Db) -> None:
    async with db.transaction() as transaction:
        transaction.put(b"a", b"2")
        raise KeyError


async def collide(db: shale.Db) -> None:
    async with db.transaction() as transaction:
        transaction.put(b"a", b"3")
        await db.put(b"a", b"4")


def test_the_block_commits_or_rolls_back() -> None:
    async def scenario(db: shale.Db) -> None:
        async with db.transaction() as transaction:
            transaction.put(b"a", b"1")
        assert await db.get(b"a") == b"1"
        with pytest.raises(KeyError):
            await fail(db)
        async with db.transaction() as transaction:
            transaction.put(b"a", b"2")
            await transaction.rollback()
        assert await db.get(b"a") == b"1"
        with pytest.raises(TransactionConflict):
            await collide(db)
        async with db.transaction() as transaction:
            transaction.put(b"b", b"1")
            handle = await transaction.commit(durable=True)
            assert db.status.durable_seq == handle.seq
        assert await contents(db) == {b"a": b"4", b"b": b"1"}
        assert db.status.oldest_snapshot_seq is None

    run(scenario, flush_interval=0)


def test_a_transaction_ends_once() -> None:
    async def scenario(db: shale.Db) -> None:
        for end in ("commit", "rollback", "conflict"):
            transaction = await db.transaction()
            transaction.put(b"k", b"1")
            if end == "conflict":
                await db.put(b"k", b"2")
                with pytest.raises(TransactionConflict):
                    await transaction.commit()
            else:
                await getattr(transaction, end)()
            await transaction.close()
            calls: list[Callable[[], Any]] = [
                partial(transaction.put, b"k", b"1"),
                partial(transaction.delete, b"k"),
                partial(transaction.merge, b"k", b"1"),
                partial(transaction.mark_read, [b"k"]),
                partial(transaction.unmark_write, [b"k"]),
                transaction.scan,
            ]
            for call in calls:
                with pytest.raises(InvalidRequestError, match="already been completed"):
                    call()
            for call in (transaction.commit, transaction.rollback, partial(transaction.get, b"k")):
                with pytest.raises(InvalidRequestError, match="already been completed"):
                    await call()

    run(scenario)


def test_impossible_transactions() -> None:
    async def scenario(db: shale.Db) -> None:
        with pytest.raises(InvalidRequestError, match="isolation"):
            db.transaction("read committed")
        transaction = await db.transaction()
        for call in (
            lambda: transaction.put(b"", b"1"),
            lambda: transaction.put(b"k", "1"),
            lambda: transaction.put(b"k", b"1", ttl="1h", expire_at=5),
            lambda: transaction.mark_read([b""]),
            lambda: transaction.unmark_write(["k"]),
        ):
            with pytest.raises(InvalidRequestError):
                call()
        with pytest.raises(MergeOperatorMissing):
            transaction.merge(b"k", b"1")
        await transaction.rollback()
        for wrong, error in ((1, InvalidSequenceNumber), (0, InvalidRequestError)):
            await db.put(b"k", b"1")
            transaction = await db.transaction()
            transaction.put(b"k", b"1")
            with pytest.raises(error):
                await transaction.commit(seq=wrong)
        transaction = await db.transaction()
        transaction.put(b"k", b"1", expire_at=7)
        assert (await transaction.commit(seq=100)).seq == 100
        assert (await db.get_row(b"k")).expire_ts == 7

    run(scenario, merge_operator=None)


def test_lifetimes_that_do_not_go_together_are_refused_at_the_commit() -> None:
    async def scenario(db: shale.Db) -> None:
        transaction = await db.transaction()
        transaction.put(b"k", b"1")
        transaction.merge(b"k", b"2", ttl="1h")
        assert await transaction.get(b"k") == b"12"
        with pytest.raises(IncompatibleMergeTtls):
            await transaction.commit()
        assert await db.get(b"k") is None

    run(scenario)


def test_an_open_transaction_ends_with_its_database() -> None:
    async def scenario() -> None:
        db = await shale.Db.open("db", store=MemoryStore())
        writing, reading = await db.transaction(), await db.transaction()
        await db.close()
        writing.put(b"k", b"1")
        with pytest.raises(ClosedError):
            await writing.get(b"k")
        for transaction in (writing, reading):
            with pytest.raises(ClosedError):
                await transaction.commit()

    anyio.run(scenario)
