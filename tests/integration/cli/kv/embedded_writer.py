"""A program that holds a database open, as users write one: ``python -m ... URL ENDPOINT``.

It says when it is ready, and writes once more when its stdin is closed.
"""

import asyncio
import sys

import shale


async def main(url: str, endpoint: str) -> None:
    """Write a row, wait for the end of stdin, and write another one."""
    async with shale.Db.open(url, writer_endpoint=endpoint or None) as db:
        await (await db.put(b"own", b"1")).durable()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await (await db.put(b"own", b"2")).durable()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
