"""The scenario of ``docs/concepts/life-of-a-get.md``: one get whose SST is not in memory."""

import shale
from tests.unit.docs.call_order import Recording

URL = "memory:///life-of-a-get"


async def run(recording: Recording) -> None:
    async with shale.Db.open(URL, flush_interval=0) as db:
        await db.put(b"key", b"value")
        await db.flush("memtable")
    async with shale.Db.open(URL, flush_interval=0) as db:
        with recording():
            assert await db.get(b"key") == b"value"
