"""Segmented databases, written by Shale and SlateDB in turn (docs/reference/protocol.md 4.5, 14)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from slatedb import uniffi as slate

import shale
from shale.errors import InvalidSegmentPrefix
from shale.format.sst.filter_policy import FixedPrefix
from tests.interop.slatedb_databases import FirstBytes, Shape, flush, flush_wal, open_folder, opened, put_all, scanned

THREE = FixedPrefix("first3", 3)
SHAPE = Shape(extractor=FirstBytes("first3", 3))


def ours(folder: Path, **settings: Any) -> Any:
    return shale.Db.open(f"file://{folder}/db", segment_extractor=THREE, **settings)


def rows_of(name: str, count: int) -> dict[bytes, bytes]:
    return {b"%s:%s:%03d" % (b"abcdef"[n % 5 : n % 5 + 2] + b"-", name.encode(), n): b"%d" % n for n in range(count)}


async def contents(db: shale.Db) -> dict[bytes, bytes]:
    return {row.key: row.value async for row in db.scan()}


def test_writers_take_turns_on_one_segmented_database(tmp_path: Path) -> None:
    """Each replays the other's WAL into segments and reads the other's trees; deletes span segments."""

    async def scenario() -> None:
        expected: dict[bytes, bytes] = {}
        store = open_folder(tmp_path)
        for turn in range(3):
            rows = rows_of(f"ours{turn}", 40)
            expected |= rows
            async with ours(tmp_path) as db:
                async with db.batch() as batch:
                    for key, value in list(rows.items())[:30]:
                        batch.put(key, value)
                await db.flush("memtable")
                for key, value in list(rows.items())[30:]:
                    await db.put(key, value)
                assert await contents(db) == expected
                await db.close("wal")
            rows = rows_of(f"theirs{turn}", 40)
            gone = sorted(expected)[::7]
            expected = {key: value for key, value in (expected | rows).items() if key not in gone}
            async with opened(store, "db", SHAPE) as theirs:
                await put_all(theirs, list(rows.items())[:30])
                await flush(theirs)
                await put_all(theirs, [*list(rows.items())[30:], *((key, None) for key in gone)])
                await flush_wal(theirs)
                assert {row[0]: row[1] for row in await scanned(theirs)} == expected
        async with ours(tmp_path) as db:
            assert await contents(db) == expected
            prefixes = [segment.prefix for segment in db.status.manifest.segments]
            assert prefixes == sorted({key[:3] for key in expected})
            assert db.status.manifest.tree.is_empty

    asyncio.run(scenario())


def test_both_refuse_the_same_writes(tmp_path: Path) -> None:
    """Errors have equal kinds, and later sequence numbers are equal: a refused batch uses one."""

    class Digit(slate.PrefixExtractor):
        def name(self) -> str:
            return "digit"

        def prefix_len(self, target: Any) -> int | None:
            data = target.key if target.is_point() else target.prefix
            return data[-1] - 48 if target.is_point() else len(data)

    class OurDigit:
        name = "digit"

        def prefix_len(self, key: bytes) -> int | None:
            return key[-1] - 48

        def scan_prefix_len(self, prefix: bytes) -> int | None:
            return len(prefix)

    batches = [
        [b"ab-2"],
        [b"zz0"],
        [b"abc-3"],
        [b"ab!2"],
        [b"xyz-3", b"xyzz4"],
        [b"xyz-3", b"xy2"],
        [b"xyzz3"],
        [b"xy-2"],
        [b"pq2", b"0"],
        [b"1"],
    ]

    async def by_us() -> list[str | int]:
        told: list[str | int] = []
        async with shale.Db.open(f"file://{tmp_path}/ours", segment_extractor=OurDigit()) as db:
            for keys in batches:
                batch = shale.WriteBatch()
                for key in keys:
                    batch.put(key, b"")
                try:
                    told.append((await db.write(batch)).seq)
                except shale.ShaleError as error:
                    told.append(str(error.kind))
        return told

    async def by_them() -> list[str | int]:
        told: list[str | int] = []
        async with opened(open_folder(tmp_path), "theirs", Shape(extractor=Digit())) as db:
            for keys in batches:
                batch = slate.WriteBatch()
                for key in keys:
                    batch.put(key, b"")
                try:
                    told.append((await db.write(batch)).seqnum())
                except slate.Error as error:
                    told.append(type(error).__name__.lower())
        return told

    us, them = asyncio.run(by_us()), asyncio.run(by_them())
    assert us == them
    assert us.count("invalid") == 6


def test_a_prefix_that_nests_with_one_of_theirs_is_refused(tmp_path: Path) -> None:
    class Lengths:
        name = "first3"

        def prefix_len(self, key: bytes) -> int | None:
            return 4 if key.endswith(b"!") else 3

        def scan_prefix_len(self, prefix: bytes) -> int | None:
            return 3 if len(prefix) >= 3 else None

    async def scenario() -> None:
        async with opened(open_folder(tmp_path), "db", SHAPE) as theirs:
            await put_all(theirs, [(b"abc-1", b"1")])
            await flush(theirs)
        async with shale.Db.open(f"file://{tmp_path}/db", segment_extractor=Lengths()) as db:
            with pytest.raises(InvalidSegmentPrefix):
                await db.put(b"abcd!", b"")

    asyncio.run(scenario())
