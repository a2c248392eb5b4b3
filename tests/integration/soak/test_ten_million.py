"""Ten million rows of 100 bytes: loaded through the writer, compacted, scanned, all in bounded memory."""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgpack
import pytest

import shale
from shale.env import Env
from shale.protocol.manifest_store import ManifestStore
from shale.store.connect import open_store
from tests.integration.daemons.daemon_process import Daemon, running

ROWS = int(os.environ.get("SHALE_SOAK_ROWS", "10_000_000"))
BATCH = 10_000
VALUE_BYTES = 84  # with a key of 16 bytes a row has 100
WRITER_LIMIT = 1 << 30
COMPACTOR_LIMIT = 512 << 20
SETTLE_S = 300


def key_of(number: int) -> bytes:
    """Return keys in no order, each once: multiplication by an odd number is a permutation."""
    return b"%016x" % (number * 0x9E3779B97F4A7C15 & (1 << 64) - 1)


def value_of(number: int) -> bytes:
    return b"%020d" % number + bytes(VALUE_BYTES - 20)


def peak_bytes(daemon: Daemon) -> int:
    """Return the peak memory of the process."""
    lines = Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


def write_batch(writer: Daemon, port: int, start: int) -> None:
    ops = [("put", key_of(number), value_of(number)) for number in range(start, min(start + BATCH, ROWS))]
    headers = {"content-type": "application/msgpack"}
    while True:
        status, answer, _ = writer.request(
            "POST", "/v1/batch", port=port, body=msgpack.packb({"ops": ops}), headers=headers
        )
        if status == 200:
            return
        assert status in (429, 503), answer
        time.sleep(0.2)


async def settled(folder: Path) -> None:
    """Wait until the scheduler has nothing to compact."""
    manifests = ManifestStore(open_store(f"file://{folder}"), "db", Env.system())
    async with asyncio.timeout(SETTLE_S):
        while True:
            latest = await manifests.try_read_latest()
            assert latest is not None
            if len(latest.value.tree.l0) < 4 and latest.value.tree.compacted:
                return
            await asyncio.sleep(1)


async def count_rows(folder: Path) -> int:
    count, previous = 0, b""
    async with shale.DbReader.open(f"file://{folder}/db") as reader:
        async for rows in reader.scan().batches(10_000):
            for row in rows:
                assert previous < row.key
                previous = row.key
            count += len(rows)
    return count


@pytest.mark.soak
def test_ten_million_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"file://{tmp_path}/store/db"
    settings = [
        "--set",
        "compactor_options.poll_interval=1s",
        "--set",
        "compactor_options.commit_compacted_interval=1s",
    ]
    began = time.monotonic()
    with running("shale_writer", "--url", url, "--port", "0", log=tmp_path / "writer.log") as writer:
        port = writer.port("port")
        with running("shale_compactor", "--url", url, *settings, log=tmp_path / "compactor.log") as compactor:
            with ThreadPoolExecutor(2) as pool:
                for _ in pool.map(lambda start: write_batch(writer, port, start), range(0, ROWS, BATCH)):
                    pass
            loaded_s = time.monotonic() - began
            asyncio.run(settled(tmp_path / "store"))
            settled_s = time.monotonic() - began
            writer_peak, compactor_peak = peak_bytes(writer), peak_bytes(compactor)
            assert (writer.stop(), compactor.stop()) == (0, 0)
    began = time.monotonic()
    assert asyncio.run(count_rows(tmp_path / "store")) == ROWS
    with capsys.disabled():
        print(
            f"\n{ROWS:,} rows loaded in {loaded_s:.0f} s, settled after {settled_s:.0f} s, "
            f"scanned in {time.monotonic() - began:.0f} s; "
            f"peak memory: writer {writer_peak >> 20} MiB, compactor {compactor_peak >> 20} MiB"
        )
    assert writer_peak < WRITER_LIMIT
    assert compactor_peak < COMPACTOR_LIMIT
