"""SlateDB reads rows that were written as columns, from the WAL and from L0."""

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

import shale
from tests.interop.slatedb_databases import Shape, open_folder, opened, scanned


@pytest.mark.parametrize("close", ["wal", "memtable"])
def test_slatedb_reads_columns(tmp_path: Path, close: str) -> None:
    numbers = [n * 7919 % 5000 for n in range(6000)]
    keys = [b"key-%05d" % n for n in numbers]
    values = [b"%d/" % place + bytes(n % 300) for place, n in enumerate(numbers)]
    expected = dict(zip(keys, values, strict=True))

    async def scenario() -> None:
        async with shale.Db.open(f"file://{tmp_path}/db", flush_interval=None) as db:
            await db.put(b"before", b"1")
            handle = await db.write_arrow(pa.table({"key": keys, "value": values}), ttl="1h")
            await db.put(b"key-00001", b"after")
            await db.close(close)
        async with opened(open_folder(tmp_path), "db", Shape()) as theirs:
            rows = await scanned(theirs)
        assert {row[0]: row[1] for row in rows} == {**expected, b"before": b"1", b"key-00001": b"after"}
        stamps = {(seq, created, expires) for key, _, seq, created, expires in rows if key in expected and seq == 2}
        assert stamps == {(2, handle.create_ts, handle.create_ts + 3_600_000)}

    asyncio.run(scenario())
