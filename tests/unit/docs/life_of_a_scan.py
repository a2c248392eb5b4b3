"""The scenario of ``docs/concepts/life-of-a-scan.md``: a scan over one L0 that is not in memory and one memtable."""

import shale
from tests.unit.docs.call_order import Recording

URL = "memory:///life-of-a-scan"


async def run(recording: Recording) -> None:
    async with shale.Db.open(URL, flush_interval=0) as db:
        await db.put(b"key/1", b"stored")
        await db.flush("memtable")
    async with shale.Db.open(URL, flush_interval=0) as db:
        await db.put(b"key/2", b"in memory")
        with recording():
            rows = [row.value async for row in db.scan(prefix=b"key/", limit=100)]
        assert rows == [b"stored", b"in memory"]
