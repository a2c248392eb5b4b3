"""A compactor with little memory merges values that are large for it."""

import os
import re
from pathlib import Path

import anyio
import pytest

import shale
from tests.integration.daemons.daemon_process import running

MIB = 1 << 20
LIMIT_MIB = 256
OPTIONS = ("--embedded-worker", "--set", f"memory.limit={LIMIT_MIB}MiB", "--set", "admin.port=0")


@pytest.mark.slow
def test_a_merge_of_large_values_stays_below_the_memory_limit(tmp_path: Path) -> None:
    """Each value is held as it was read, as it is merged and as it is uploaded, and nowhere else."""
    url = f"file://{tmp_path}/orders"
    expected = {b"k%d" % number: os.urandom(15 * MIB) for number in range(4)}

    async def write() -> None:
        async with shale.Db.open(url) as db:
            for value in (b"old", b"older", None):
                for number, (key, last) in enumerate(expected.items()):
                    await db.put(key, last if value is None else value * (3 * MIB))
                    if number % 2:
                        await db.flush("memtable")

    async def rows() -> dict[bytes, bytes]:
        async with shale.DbReader.open(url) as reader:
            return {row.key: row.value async for row in reader.scan()}

    anyio.run(write)
    with running("shale_compactor", "--url", url, *OPTIONS, log=tmp_path / "log") as daemon:
        daemon.wait_for("compaction.committed")
        status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    (peak_kib,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    assert int(peak_kib) < LIMIT_MIB << 10, "338 MiB before large values were passed on one by one"
    assert anyio.run(rows) == expected
