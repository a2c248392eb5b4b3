"""The scenario of ``docs/concepts/life-of-a-flush.md``: one memtable goes to L0."""

import shale
from tests.unit.docs.call_order import Recording


async def run(recording: Recording) -> None:
    async with shale.Db.open("memory:///flush", flush_interval=0) as db:
        await db.put(b"key", b"value")
        with recording():
            await db.flush("memtable")
