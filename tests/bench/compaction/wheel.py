"""Lets SlateDB 0.17 compact a database of four L0s and prints its seconds of CPU and of wall time.

Usage: ``python -m tests.bench.compaction.wheel DIRECTORY PATH``.  The wall time begins when the database is open, so
the time that its coordinator waits for its timers, here 100 ms each, is in it.
"""

import asyncio
import os
import sys
from pathlib import Path
from time import perf_counter, process_time

from shale.format.manifest import decode_manifest

TIMERS = {
    "compactor_options.poll_interval": '"100ms"',
    "compactor_options.commit_compacted_interval": '"100ms"',
    "compactor_options.worker.compactions_poll_interval": '"100ms"',
    "garbage_collector_options": "null",
}


def is_compacted(directory: Path) -> bool:
    """Whether the latest manifest has no L0 any more."""
    latest = max((directory / "manifest").glob("*.manifest"))
    return not decode_manifest(latest.read_bytes()).tree.l0


async def main(directory: str, path: str) -> None:
    """Open, wait, close."""
    os.environ.update({"CLOUD_PROVIDER": "local", "LOCAL_PATH": directory})
    from slatedb import uniffi

    settings = uniffi.Settings.default()
    for name, value in TIMERS.items():
        settings.set(name, value)
    builder = uniffi.DbBuilder(path, uniffi.ObjectStore.from_env(None))
    builder.with_settings(settings)
    cpu = process_time()
    db = await builder.build()
    wall = perf_counter()
    while not is_compacted(Path(directory) / path):  # noqa: ASYNC110 - nothing to wait on
        await asyncio.sleep(0.05)
    sys.stdout.write(f"{process_time() - cpu} {perf_counter() - wall}\n")
    await db.shutdown()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
