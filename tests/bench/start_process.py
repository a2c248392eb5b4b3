"""One process of the suite ``start``: opens a database, puts, gets and scans; prints what each took.

Its imports are part of what is measured: nothing else is imported before the database is open.
"""

import asyncio
import sys
from time import CLOCK_MONOTONIC as MONOTONIC
from time import clock_gettime, perf_counter, process_time

import shale


def resident_mb() -> float:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as told:  # noqa: PTH123 - pathlib is part of what is measured
        return int(told.read().split()[1]) * 4096 / 2**20


async def main(url: str, started: float) -> None:
    """Measure the first calls of a process that was started at ``started``."""
    async with shale.Db.open(url) as db:
        opened_ms = (clock_gettime(MONOTONIC) - started) * 1000
        opened_cpu_ms = process_time() * 1000
        begun = perf_counter()
        handle = await db.put(b"key", b"value")
        await handle.durable()
        put = perf_counter()
        await db.get(b"key")
        got = perf_counter()
        resident = resident_mb()
        count = 0
        async for _ in db.scan():
            count += 1
        scanned = resident_mb()
    import json

    print(
        json.dumps(
            {
                "interpreter, import and open": opened_ms,
                "the same, CPU time": opened_cpu_ms,
                "first durable put": (put - begun) * 1000,
                "first get": (got - put) * 1000,
                "resident after these": resident,
                "resident after a scan of 100,000 rows": scanned,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
