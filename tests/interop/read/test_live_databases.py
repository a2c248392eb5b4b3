"""``DbReader`` returns the rows of SlateDB's own scan, by every method, for new databases of SlateDB 0.17.0."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from slatedb import uniffi as slate

from shale.engine.db_reader import DbReader
from shale.format.sst.image_limits import IMAGE_BYTES_USUAL
from shale.types import Row
from tests.interop.read.databases import concatenate
from tests.interop.slatedb_databases import (
    Concatenate,
    FirstBytes,
    Shape,
    flush,
    flush_wal,
    open_folder,
    opened,
    put_all,
    scanned,
)

BLOCKS = slate.SstBlockSize
COMPACTOR: dict[str, Any] = json.loads(slate.Settings.default().to_json_string())["compactor_options"]
COMPACTOR["poll_interval"] = "20ms"
COMPACTOR["worker"] |= {"max_sst_size": 20_000, "compactions_poll_interval": "20ms", "heartbeat_interval": "20ms"}
SHAPES = {
    "plain": Shape({"min_filter_keys": 1 << 20}),
    "small blocks, filters": Shape({"min_filter_keys": 0}, BLOCKS.BLOCK1_KIB),
    "large blocks, zlib": Shape({"compression_codec": "Zlib"}, BLOCKS.BLOCK64_KIB),
    "snappy, filters": Shape({"compression_codec": "Snappy", "min_filter_keys": 10}),
    "lz4, operands": Shape({"compression_codec": "Lz4"}, merge_operator=Concatenate()),
    "zstd, compacted": Shape({"compression_codec": "Zstd", "compactor_options": COMPACTOR}, BLOCKS.BLOCK1_KIB),
    "segments": Shape(extractor=FirstBytes("first3", 3)),
}


async def write(db: slate.Db, rng: random.Random, shape: Shape) -> None:
    """Write rounds of overwrites and deletes, all except the last into L0s or below."""
    for number in range(6):
        rows = {
            b"%03d/%03d" % (rng.randrange(4), rng.randrange(300)): (
                None if rng.random() < 0.1 else rng.randbytes(rng.randrange(120))
            )
            for _ in range(250)
        }
        await put_all(db, list(rows.items()))
        if shape.merge_operator is not None:
            for key in list(rows)[:20]:
                await db.merge(key, b"+%d" % number)
        await (flush(db) if number < 5 else flush_wal(db))
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("name", SHAPES)
def test_rows_of_a_live_database(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]

    async def run() -> None:
        async with opened(open_folder(tmp_path), "db", shape) as db:
            await write(db, random.Random(name), shape)
            theirs = [Row(*row) for row in await scanned(db)]
            operator = None if shape.merge_operator is None else concatenate
            async with DbReader.open("db", store=f"file://{tmp_path}", merge_operator=operator) as reader:
                assert [row async for row in reader.scan()] == theirs
                keys = [row.key for row in theirs]
                assert await reader.get_many([*keys, b"000/"]) == [*(row.value for row in theirs), None]
                assert [await reader.get_row(key) for key in keys[::9]] == theirs[::9]
                prefix = [row async for row in reader.scan(prefix=b"002", limit=50)]
                assert prefix == [row for row in theirs if row.key.startswith(b"002")][:50]

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["Zlib", "Zstd", "Lz4", "Snappy"])
def test_a_row_that_shrinks_a_thousandfold_is_read(codec: str, tmp_path: Path) -> None:
    """It is above every limit of its block but that of the stats."""
    shape = Shape({"compression_codec": codec, "min_filter_keys": 1})
    value = bytes(IMAGE_BYTES_USUAL + (1 << 20))
    keys = [number.to_bytes(2, "big") + bytes(65_533) for number in range(20)]

    async def run() -> None:
        async with opened(open_folder(tmp_path), "db", shape) as db:
            await put_all(db, [*((key, b"v") for key in keys), (b"large", value)])
            await flush(db)
            async with DbReader.open("db", store=f"file://{tmp_path}", follow_latest=True) as reader:
                assert reader.manifest.tree.l0
                assert await reader.get_many([b"large", *keys]) == [value, *[b"v"] * 20]
                assert [row.key async for row in reader.scan()] == [*keys, b"large"]

    asyncio.run(run())
