"""Many scans of large values at once do not take more memory than the reader has."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

import shale
from tests.integration.daemons.daemon_process import running

MIB = 1 << 20
LIMIT_MIB = 256
SCANS = 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["alone", "after small rows", "compressed"])
def test_scans_over_overlapping_l0s_stay_below_the_memory_limit(tmp_path: Path, kind: str) -> None:
    """A merge holds a block of each L0: with four of them, each scan holds four values and what it returns."""
    url, is_compressed = f"file://{tmp_path}/orders", kind == "compressed"

    def value() -> bytes:
        # A compressed one is in memory twice for a moment, when it is unpacked.
        return os.urandom(12) * MIB if is_compressed else os.urandom(15 * MIB)

    newest = {key: value() for key in (b"a1", b"z1")}

    async def write() -> None:
        async with shale.Db.open(url, compression="zstd" if is_compressed else "none") as db:
            for is_last in (False, False, False, True):
                for key, last in newest.items():
                    if kind == "after small rows":
                        await db.put(key[:1] + b"0", b"1")
                    await db.put(key, last if is_last else value())
                await db.flush("memtable")

    anyio.run(write)
    options = ("--url", url, "--port", "0", "--set", f"memory.limit={LIMIT_MIB * 7 // 10}MiB")
    with running("shale_reader", *options, log=tmp_path / "log") as daemon:
        port = daemon.port("port")
        headers = {"Content-Type": "application/json", "Accept": "application/vnd.apache.arrow.stream"}

        def scan(_number: int) -> tuple[int, bytes]:
            return daemon.request("POST", "/v1/scan", port=port, body=b"{}", headers=headers)[:2]

        with ThreadPoolExecutor(SCANS) as threads:
            answers = list(threads.map(scan, range(SCANS)))
        status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    for code, body in answers:
        assert code == 200
        assert all(value in body for value in newest.values())
    (peak_kib,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    assert int(peak_kib) < LIMIT_MIB << 10
