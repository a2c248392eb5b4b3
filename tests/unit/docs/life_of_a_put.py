"""The scenario of ``docs/concepts/life-of-a-put.md``: one put, then the wait until it is durable."""

import shale
from tests.unit.docs.call_order import Recording


async def run(recording: Recording) -> None:
    async with shale.Db.open("memory:///put", flush_interval=0) as db:
        with recording():
            handle = await db.put(b"key", b"value")
            await handle.durable()
