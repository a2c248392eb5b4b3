"""Block sizes, codecs and filters of a database: SlateDB reads Shale's SSTs and uses Shale's filters."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from slatedb import uniffi as slate

import shale
from shale.format.sst.filter_policy import BloomPolicy, FixedPrefix
from shale.sst.options import BLOCK_SIZE_MAX
from tests.interop.slatedb_databases import EVERYTHING, FirstBytes, Shape, flush, open_folder, opened, put_all, scanned
from tests.unit.engine.reading import RangeRecordingStore

ROWS = [(b"%02d/%05d" % (number % 40, number), b"v%d" % number * 20) for number in range(1500)]


def ours(folder: Path, **settings: Any) -> Any:
    return shale.Db.open("db", store=f"file://{folder}", **{"flush_interval": 0, "min_filter_keys": 1, **settings})


def policies() -> list[Any]:
    """Return SlateDB's policies, equal to Shale's below."""
    options = slate.BloomFilterOptions(bits_per_key=12, whole_key_filtering=False)
    return [slate.FilterPolicy.bloom_with_options(options, FirstBytes("p3", 3)), slate.FilterPolicy.bloom(10)]


OURS = (BloomPolicy(12, FixedPrefix("p3", 3), whole_key=False), BloomPolicy(10))


@pytest.mark.parametrize("compression", ["none", "snappy", "zlib", "lz4", "zstd"])
@pytest.mark.parametrize("block_size", [1024, 4096, 16384, BLOCK_SIZE_MAX])
def test_slatedb_reads_every_shape(tmp_path: Path, block_size: int, compression: str) -> None:
    async def scenario() -> None:
        async with ours(tmp_path, block_size_bytes=block_size, compression=compression) as db:
            for key, value in ROWS:
                await db.put(key, value)
            await db.flush("memtable")
        async with opened(open_folder(tmp_path), "db", Shape()) as peer:
            assert [(row[0], row[1]) for row in await scanned(peer)] == sorted(ROWS)
            for key, value in ROWS[::100]:
                assert await peer.get(key) == value
            assert await peer.get(b"00/99999") is None

    asyncio.run(scenario())


async def keys_of(iterator: Any) -> list[bytes]:
    found = []
    while (row := await iterator.next()) is not None:
        found.append(row.key)
    return found


def test_slatedb_asks_our_filters(tmp_path: Path) -> None:
    """With the same policies SlateDB finds every key and prefix, and with others it still misses none."""

    async def scenario() -> None:
        async with ours(tmp_path, filter_policies=OURS) as db:
            for key, value in ROWS:
                await db.put(key, value)
            await db.flush("memtable")
        for shape in (Shape(filter_policies=policies), Shape(filter_policies=lambda: policies()[1:]), Shape()):
            async with opened(open_folder(tmp_path), "db", shape) as peer:
                for prefix in range(0, 60, 7):
                    wanted = sorted(key for key, _ in ROWS if key.startswith(b"%02d/" % prefix))
                    assert await keys_of(await peer.scan_prefix(b"%02d/" % prefix, EVERYTHING)) == wanted
                assert await peer.get(ROWS[77][0]) == ROWS[77][1]
                assert await peer.get(b"77/00077") is None

    asyncio.run(scenario())


def test_we_ask_slatedbs_filters(tmp_path: Path) -> None:
    """Shale does not read what SlateDB's filters exclude, by prefix or by whole key."""

    async def scenario() -> None:
        shape = Shape(settings={"min_filter_keys": 0}, filter_policies=lambda: policies()[:1])
        async with opened(open_folder(tmp_path), "db", shape) as db:
            await put_all(db, ROWS)
            await flush(db)
        store = RangeRecordingStore()
        for path in (tmp_path / "db").rglob("*"):
            if path.is_file():
                await store.put(str(path.relative_to(tmp_path)), path.read_bytes())
        async with shale.DbReader.open("db", store=store, follow_latest=True, filter_policies=OURS) as reader:
            await reader.cache.warm(targets=["filters"])
            store.reads.clear()
            assert [row async for row in reader.scan(prefix=b"77/")] == []
            assert await reader.get(b"77/00077") is None
            assert store.reads == []
            assert len([row async for row in reader.scan(prefix=b"07/")]) == 38
            assert await reader.get(ROWS[77][0]) == ROWS[77][1]
            assert store.reads
        async with shale.DbReader.open("db", store=store, follow_latest=True) as reader:
            assert len([row async for row in reader.scan(prefix=b"07/")]) == 38
            assert await reader.get(b"77/00077") is None

    asyncio.run(scenario())
