"""The scenario of ``docs/concepts/life-of-a-replay.md``: a writer opens a database with rows in its WAL."""

import shale
from tests.unit.docs.call_order import Recording


async def run(recording: Recording) -> None:
    async with shale.Db.open("memory:///replay", flush_interval=0) as db:
        handle = await db.put(b"key", b"value")
        await handle.durable()
        await db.close("none")
    with recording():
        db = await shale.Db.open("memory:///replay")
    assert await db.get(b"key") == b"value"
    await db.close()
