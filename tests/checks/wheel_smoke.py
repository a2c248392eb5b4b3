"""Write, flush, read and scan with an installed Shale: ``python wheel_smoke.py``; prints what it used, as JSON.

It imports Shale and the standard library only, for any interpreter that has a wheel installed.
"""

import asyncio
import json
import platform
import random
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import shale
from shale.kernels.dispatch import compiled

ROWS = 100_000


def rows_of() -> dict[bytes, bytes]:
    """Return the rows to write, in random order."""
    rng = random.Random(15)
    return {b"%016x" % rng.getrandbits(64): b"value %d" % number for number in range(ROWS)}


async def check(url: str, rows: dict[bytes, bytes]) -> float:
    """Compare every way to read with the rows written; return the seconds of a full scan."""
    keys = list(rows)
    async with shale.Db.open(url) as db:
        for start in range(0, ROWS, 10_000):
            async with db.batch() as batch:
                for key in keys[start : start + 10_000]:
                    batch.put(key, rows[key])
            if start % 20_000:
                await db.flush("memtable")
        await db.delete(keys[-1])
    del rows[keys[-1]]
    async with shale.Db.open(url) as db:  # also from blocks and the log, not only from memory
        for key in keys[:500]:
            assert await db.get(key) == rows[key]
        assert await db.get(b"absent") is None
        assert await db.get(keys[-1]) is None
        assert await db.get_many(keys[:1000]) == [rows[key] for key in keys[:1000]]
        start_time = perf_counter()
        scanned = {row.key: row.value async for row in db.scan()}
        seconds = perf_counter() - start_time
        assert list(scanned) == sorted(rows)
        assert scanned == rows
    return seconds


def main() -> None:
    """Check, and print version, machine, variant of the kernels, and times."""
    assert compiled is not None, "the wheel has no compiled kernels for this interpreter"
    with tempfile.TemporaryDirectory() as folder:
        seconds = asyncio.run(check(f"file://{folder}/db", rows_of()))
    print(
        json.dumps(
            {
                "python": platform.python_version(),
                "machine": platform.machine(),
                "variant": compiled.VARIANT,
                "scan_s": round(seconds, 3),
                "from": str(Path(shale.__file__).parents[1]),
                "numba": "numba" in sys.modules,
            }
        )
    )


if __name__ == "__main__":
    main()
