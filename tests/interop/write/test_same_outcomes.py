"""The same writes, transactions and snapshots in Shale and SlateDB: equal rows, numbers and kinds of errors."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from slatedb import uniffi as slate

import shale
from shale.errors import ShaleError
from tests.interop.slatedb_databases import Concatenate, open_folder

KEYS = [b"a", b"aa", b"b", b"ba", b"c"]
STEPS = 60
KINDS = {
    slate.Error.Transaction: "transaction",
    slate.Error.Closed: "closed:clean",
    slate.Error.Unavailable: "unavailable",
    slate.Error.Invalid: "invalid",
    slate.Error.Data: "data",
    slate.Error.Internal: "internal",
}
DEFAULT, NEVER = slate.Ttl.DEFAULT(), slate.Ttl.NO_EXPIRY()
LIFETIMES: list[tuple[dict[str, Any], Any]] = [
    ({}, DEFAULT),
    ({}, DEFAULT),
    ({"ttl": shale.NEVER}, NEVER),
    ({"ttl": 3600}, slate.Ttl.EXPIRE_AFTER_MILLIS(3_600_000)),
    ({"expire_at": 4_000_000_000_000}, slate.Ttl.EXPIRE_AT_MILLIS(4_000_000_000_000)),
]


class Ours:
    """Shale with the interface of this test."""

    def __init__(self, db: shale.Db) -> None:
        self.db = db
        self.transactions: dict[int, Any] = {}
        self.snapshots: dict[int, Any] = {}

    async def write(self, ops: list[Any], *, seq: int | None = None) -> int:
        batch = shale.WriteBatch()
        for name, key, value, (lifetime, _) in ops:
            batch.delete(key) if name == "delete" else getattr(batch, name)(key, value, **lifetime)
        return (await self.db.write(batch, seq=seq)).seq

    async def one(self, op: Any) -> int:
        name, key, value, (lifetime, _) = op
        if name == "delete":
            return (await self.db.delete(key)).seq
        return (await getattr(self.db, name)(key, value, **lifetime)).seq

    async def begin(self, number: int, serializable: bool) -> int:
        begun = self.db.transaction("serializable" if serializable else "snapshot")
        begun.tells_own_lifetimes = False  # as SlateDB's
        tx = self.transactions[number] = await begun
        return tx.seq

    async def tx_op(self, number: int, op: Any) -> None:
        name, key, value, (lifetime, _) = op
        tx = self.transactions[number]
        tx.delete(key) if name == "delete" else getattr(tx, name)(key, value, **lifetime)

    async def tx_mark(self, number: int, what: str, key: bytes) -> None:
        getattr(self.transactions[number], what)([key])

    async def tx_end(self, number: int, how: str) -> int | None:
        handle = await getattr(self.transactions[number], how)()
        return None if handle is None else handle.seq

    async def snapshot(self, number: int) -> None:
        self.snapshots[number] = await self.db.snapshot()

    def reads(self, which: str, number: int) -> Any:
        return self.db if which == "db" else getattr(self, which)[number]

    async def get(self, which: str, number: int, key: bytes) -> Any:
        row = await self.reads(which, number).get_row(key)
        return None if row is None else (row.value, row.seq, lives(row.create_ts, row.expire_ts))

    async def scan(self, which: str, number: int, start: bytes, stop: bytes, reverse: bool, rows: int) -> Any:
        scan = self.reads(which, number).scan(start=start, stop=stop, reverse=reverse)
        found = [row async for row in limited(scan, rows)]
        return [(row.key, row.value, row.seq, lives(row.create_ts, row.expire_ts)) for row in found]

    async def flush(self, kind: str) -> None:
        await self.db.flush(kind)


class Theirs(Ours):
    """SlateDB with the interface of this test."""

    async def write(self, ops: list[Any], *, seq: int | None = None) -> int:
        batch = slate.WriteBatch()
        for name, key, value, (_, ttl) in ops:
            if name == "delete":
                batch.delete(key)
            elif name == "put":
                batch.put_with_options(key, value, slate.PutOptions(ttl=ttl))
            else:
                batch.merge_with_options(key, value, slate.MergeOptions(ttl=ttl))
        return (await self.db.write_with_options(batch, slate.WriteOptions(seqnum=seq or 0))).seqnum()

    async def one(self, op: Any) -> int:
        name, key, value, (_, ttl) = op
        options = slate.WriteOptions(seqnum=0)
        if name == "delete":
            return (await self.db.delete(key)).seqnum()
        if name == "put":
            return (await self.db.put_with_options(key, value, slate.PutOptions(ttl=ttl), options)).seqnum()
        return (await self.db.merge_with_options(key, value, slate.MergeOptions(ttl=ttl), options)).seqnum()

    async def begin(self, number: int, serializable: bool) -> int:
        level = slate.IsolationLevel.SERIALIZABLE_SNAPSHOT if serializable else slate.IsolationLevel.SNAPSHOT
        tx = self.transactions[number] = await self.db.begin(level)
        return tx.seqnum()

    async def tx_op(self, number: int, op: Any) -> None:
        name, key, value, (_, ttl) = op
        tx = self.transactions[number]
        if name == "delete":
            await tx.delete(key)
        elif name == "put":
            await tx.put_with_options(key, value, slate.PutOptions(ttl=ttl))
        else:
            await tx.merge_with_options(key, value, slate.MergeOptions(ttl=ttl))

    async def tx_mark(self, number: int, what: str, key: bytes) -> None:
        await getattr(self.transactions[number], what)([key])

    async def tx_end(self, number: int, how: str) -> int | None:
        handle = await getattr(self.transactions[number], how)()
        return None if handle is None else handle.seqnum()

    async def get(self, which: str, number: int, key: bytes) -> Any:
        row = await self.reads(which, number).get_key_value(key)
        return None if row is None else (row.value, row.seq, lives(row.create_ts, row.expire_ts))

    async def scan(self, which: str, number: int, start: bytes, stop: bytes, reverse: bool, rows: int) -> Any:
        key_range = slate.KeyRange(start=start, start_inclusive=True, end=stop, end_inclusive=False)
        order = slate.IterationOrder.DESCENDING if reverse else slate.IterationOrder.ASCENDING
        options = slate.ScanOptions(
            durability_filter=slate.DurabilityLevel.MEMORY, dirty=False, read_ahead_bytes=1, cache_blocks=True,
            max_fetch_tasks=1, order=order,
        )  # fmt: skip
        rows_ = await self.reads(which, number).scan_with_options(key_range, options)
        found = []
        while len(found) < rows and (row := await rows_.next()) is not None:
            found.append((row.key, row.value, row.seq, lives(row.create_ts, row.expire_ts)))
        return found

    async def flush(self, kind: str) -> None:
        flush = slate.FlushType.WAL if kind == "wal" else slate.FlushType.MEM_TABLE
        await self.db.flush_with_options(slate.FlushOptions(flush_type=flush))


async def limited(rows: AsyncIterator[Any], count: int) -> AsyncIterator[Any]:
    while count > 0:
        count -= 1
        row = await anext(rows, None)
        if row is None:
            return
        yield row


def lives(create_ts: int | None, expire_ts: int | None) -> object:
    """Return the lifetime of a row, as far as both can agree: commit times differ."""
    if expire_ts is None:
        return None
    if expire_ts == 4_000_000_000_000:
        return "at"
    return round((expire_ts - create_ts) / 60_000) if create_ts else "after"  # of operands, times of several commits


async def outcome(call: Any) -> Any:
    try:
        return await call
    except ShaleError as error:
        return str(error.kind)
    except slate.Error as error:
        return next(kind for class_, kind in KINDS.items() if isinstance(error, class_))


class RandomSteps:
    """The random steps of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = 0

    def op(self, names: tuple[str, ...] = ("put", "put", "delete", "merge")) -> Any:
        self.count += 1
        return self.rng.choice(names), self.rng.choice(KEYS), b"%d," % self.count, self.rng.choice(LIFETIMES)

    def step(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        rng = self.rng
        number = rng.randrange(3)
        which = rng.choice(["db", "snapshots", "transactions", "transactions"])
        first, second = sorted((rng.choice(KEYS), rng.choice([*KEYS, b"z"])))
        match rng.choices(
            ["one", "write", "begin", "tx_op", "tx_mark", "tx_end", "snapshot", "get", "scan", "flush"],
            [6, 3, 4, 9, 2, 4, 1, 8, 5, 1],
        )[0]:
            case "one":
                return "one", (self.op(),), {}
            case "write":
                seq = rng.choice([None, None, None, 2, 20 * self.count or None])
                return "write", ([self.op() for _ in range(rng.randrange(5))],), {"seq": seq}
            case "begin":
                return "begin", (number, rng.random() < 0.6), {}
            case "tx_op":
                return "tx_op", (number, self.op()), {}
            case "tx_mark":
                return "tx_mark", (number, rng.choice(["mark_read", "unmark_write"]), rng.choice(KEYS)), {}
            case "tx_end":
                return "tx_end", (number, rng.choice(["commit", "commit", "commit", "rollback"])), {}
            case "snapshot":
                return "snapshot", (number,), {}
            case "get":
                return "get", (which, number, rng.choice(KEYS)), {}
            case "scan":
                if first == second:
                    second += b"\0"
                return "scan", (which, number, first, second, rng.random() < 0.4, rng.choice([1, 99])), {}
            case _:
                return "flush", (rng.choice(["wal", "memtable"]),), {}


@asynccontextmanager
async def both(folder: Path) -> AsyncIterator[tuple[Ours, Theirs]]:
    (folder / "ours").mkdir()
    (folder / "theirs").mkdir()
    builder = slate.DbBuilder("db", open_folder(folder / "theirs"))
    builder.with_merge_operator(Concatenate())
    theirs = await builder.build()
    url = f"file://{folder}/ours/db"
    async with shale.Db.open(url, merge_operator="concatenate") as ours:
        yield Ours(ours), Theirs(theirs)
    await theirs.shutdown()


@pytest.mark.parametrize("seed", range(8))
def test_the_same_steps_have_the_same_outcomes(tmp_path: Path, seed: int) -> None:
    async def test() -> None:
        scenario = RandomSteps(seed)
        async with both(tmp_path) as (ours, theirs):
            for number in range(3):
                for side in (ours, theirs):
                    await side.begin(number, serializable=True)
                    await side.snapshot(number)
            for _ in range(STEPS * 4):
                name, args, options = scenario.step()
                mine = await outcome(getattr(ours, name)(*args, **options))
                other = await outcome(getattr(theirs, name)(*args, **options))
                assert mine == other, (name, args, options)
            for key_range in (("db", 0, b"a", b"z", False, 99), ("db", 0, b"a", b"z", True, 99)):
                assert await ours.scan(*key_range) == await theirs.scan(*key_range)

    anyio.run(test)


def test_each_reads_what_the_other_has_merged(tmp_path: Path) -> None:
    """Operands in the WAL, in L0s and above values: one writes them, the other folds and continues them."""

    async def test() -> None:
        scenario = RandomSteps(7)
        expected: dict[bytes, bytes] = {}
        store = open_folder(tmp_path)
        for round_ in range(6):
            ops = [scenario.op(("put", "delete", "merge", "merge"))[:3] for _ in range(30)]
            for name, key, value in ops:
                if name == "delete":
                    expected.pop(key, None)
                else:
                    expected[key] = (expected.get(key, b"") if name == "merge" else b"") + value
            if round_ % 2:
                builder = slate.DbBuilder("db", store)
                builder.with_merge_operator(Concatenate())
                db = await builder.build()
                side: Ours = Theirs(db)
            else:
                db = await shale.Db.open(f"file://{tmp_path}/db", merge_operator="concatenate", flush_interval=0)
                side = Ours(db)
            for name, key, value in ops:
                await side.one((name, key, value, LIFETIMES[0]))
                if scenario.rng.random() < 0.1:
                    await side.flush("wal")
            if round_ in (0, 3):
                await side.flush("memtable")
            await side.flush("wal")
            found = await side.scan("db", 0, b"a", b"z", False, 99)
            assert {key: value for key, value, *_ in found} == expected
            await (db.close("wal") if round_ % 2 == 0 else db.shutdown())

    anyio.run(test)


def test_the_tracker_answers_alike(tmp_path: Path) -> None:
    async def test() -> None:
        folder = tmp_path / "db"
        async with shale.Db.open(f"file://{folder}", flush_interval=0) as db:
            handle = await db.put(b"k", b"1")
            await db.flush("memtable")
            admin = slate.AdminBuilder("db", open_folder(tmp_path)).build()
            second = handle.create_ts // 1000
            for seq in (0, 1, 2):
                for up in (False, True):
                    time = db.status.time_of(seq, round_up=up)
                    theirs = await admin.get_timestamp_for_sequence(seq, up)
                    assert (None if time is None else int(time.timestamp())) == theirs
            for ago in (-5, 0, 5):
                for up in (False, True):
                    theirs = await admin.get_sequence_for_timestamp(second - ago, up)
                    assert db.status.seq_at((second - ago) * 1000, round_up=up) == theirs

    anyio.run(test)
