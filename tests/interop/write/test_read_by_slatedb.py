"""The released ``slatedb`` package reads every row that ``Db`` wrote, writes, and ``Db`` reads that again."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import shale
from shale.errors import FencedError
from shale.format.sst.filter_policy import BloomPolicy, FixedPrefix
from tests.interop.slatedb_databases import Concatenate, Shape, flush, flush_wal, open_folder, opened, put_all, scanned

Model = dict[bytes, bytes]


def ours(folder: Path, **settings: Any) -> Any:
    return shale.Db.open("db", store=f"file://{folder}", **{"flush_interval": 0, **settings})


async def our_rows(db: shale.Db) -> list[tuple[Any, ...]]:
    return [tuple(row) async for row in db.scan()]


async def write_some(db: shale.Db, model: Model, rng: random.Random, count: int) -> None:
    """Write single rows, batches and deletes; values range from empty to longer than a block."""
    for number in range(count):
        key = b"%04d" % rng.randrange(400) + b"k" * rng.randrange(3)
        value = rng.randbytes(rng.choice((0, 1, 60, 60, 60, 9000)))
        match rng.randrange(6):
            case 0:
                await db.delete(key)
                model.pop(key, None)
            case 1:
                async with db.batch() as batch:
                    for suffix in (b"z", b"a", b"m"):
                        batch.put(key + suffix, value)
                        model[key + suffix] = value
                    batch.delete(key)
                    model.pop(key, None)
            case _:
                await db.put(key, value)
                model[key] = value
        if number % 100 == 99:
            await db.flush("wal")


@pytest.mark.parametrize("compression", ["none", "snappy", "zlib", "lz4", "zstd"])
def test_the_peer_reads_and_continues_what_we_wrote(tmp_path: Path, compression: str) -> None:
    """L0s with filters, WAL files and a tracker, with every codec."""

    async def scenario() -> None:
        rng, model = random.Random(compression), Model()
        async with ours(tmp_path, compression=compression, min_filter_keys=1) as db:
            for _ in range(3):
                await write_some(db, model, rng, 400)
                await db.flush("memtable")
            await write_some(db, model, rng, 150)
            rows = await our_rows(db)
            last_seq = db.status.last_seq
            await db.close("wal")
        async with opened(open_folder(tmp_path), "db", Shape()) as peer:
            assert await scanned(peer) == rows
            for key, value, *_ in rows[::50]:
                assert await peer.get(key) == value
            assert await peer.get(b"nothing like it") is None
            handle = await peer.put(b"peer", b"was here")
            assert handle.seqnum() == last_seq + 1
            await put_all(peer, [(b"0000", None), (b"peer 2", b"x" * 10_000)])
            await flush(peer)
            await peer.put(b"peer 3", b"")
            await flush_wal(peer)
            rows = await scanned(peer)
        async with ours(tmp_path, compression=compression) as db:
            assert await our_rows(db) == rows
            assert (await db.put(b"again", b"ours")).seq == last_seq + 4

    asyncio.run(scenario())


def test_ten_turns_on_one_directory(tmp_path: Path) -> None:
    """Each turn replays the WAL of the other and reads its manifests."""

    async def scenario() -> None:
        rng, model = random.Random(10), Model()
        for turn in range(10):
            if turn % 2 == 0:
                async with ours(tmp_path) as db:
                    assert {row.key: row.value async for row in db.scan()} == model
                    await write_some(db, model, rng, 60)
                    if turn % 4 == 0:
                        await db.flush("memtable")
                    await write_some(db, model, rng, 20)
                    await db.close("wal" if turn % 3 else "memtable")
            else:
                async with opened(open_folder(tmp_path), "db", Shape()) as peer:
                    assert {key: value for key, value, *_ in await scanned(peer)} == model
                    rows = [(b"%04d" % rng.randrange(400), rng.choice((None, b"p" * turn))) for _ in range(40)]
                    await put_all(peer, rows)
                    for key, value in rows:
                        model.pop(key, None)
                        if value is not None:
                            model[key] = value
                    if turn % 4 == 1:
                        await flush(peer)
                    await peer.put(b"turn", b"%d" % turn)
                    model[b"turn"] = b"%d" % turn

    asyncio.run(scenario())


def test_each_fences_the_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        db = await ours(tmp_path)
        await (await db.put(b"a", b"1")).durable()
        async with opened(open_folder(tmp_path), "db", Shape()) as peer:
            handle = await db.put(b"lost", b"")
            with pytest.raises(FencedError):
                await handle.durable()
            with pytest.raises(FencedError):
                await db.put(b"lost too", b"")
            with pytest.raises(FencedError):
                await db.close()
            await peer.put(b"b", b"2")
            await flush_wal(peer)
            async with ours(tmp_path) as successor:
                assert {row.key async for row in successor.scan()} == {b"a", b"b"}
                await (await successor.put(b"c", b"3")).durable()
                await peer.put(b"late", b"")
                with pytest.raises(Exception, match=r"(?i)fenced|closed"):
                    await flush_wal(peer)
        async with ours(tmp_path) as db:
            assert {row.key async for row in db.scan()} == {b"a", b"b", b"c"}

    asyncio.run(scenario())


def concatenate(_key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
    return (existing or b"") + b"".join(operands)


def test_replayed_merge_operands_are_flushed_and_folded(tmp_path: Path) -> None:
    async def scenario() -> None:
        shape = Shape(merge_operator=Concatenate())
        async with opened(open_folder(tmp_path), "db", shape) as peer:
            await peer.put(b"k", b"base")
            for operand in (b"+1", b"+2"):
                await peer.merge(b"k", operand)
            await peer.merge(b"fresh", b"only")
        async with ours(tmp_path, merge_operator=concatenate) as db:
            wanted = {b"k": b"base+1+2", b"fresh": b"only"}
            assert {row.key: row.value async for row in db.scan()} == wanted
            await db.flush("memtable")
            assert {row.key: row.value async for row in db.scan()} == wanted
        async with opened(open_folder(tmp_path), "db", shape) as peer:
            await peer.merge(b"k", b"+3")
            assert {key: value for key, value, *_ in await scanned(peer)} == {**wanted, b"k": b"base+1+2+3"}

    asyncio.run(scenario())


def test_prefix_filters_and_a_lifetime(tmp_path: Path) -> None:
    async def scenario() -> None:
        policies = (BloomPolicy(12, FixedPrefix("p4", 4)), BloomPolicy(16))
        async with ours(tmp_path, filter_policies=policies, min_filter_keys=1) as db:
            for number in range(50):
                await db.put(b"%06d" % number, b"v", ttl="1h" if number % 2 else None)
            await db.flush("memtable")
            rows = await our_rows(db)
        async with opened(open_folder(tmp_path), "db", Shape()) as peer:
            assert await scanned(peer) == rows
            assert [bool(row[4]) for row in rows] == [False, True] * 25

    asyncio.run(scenario())
