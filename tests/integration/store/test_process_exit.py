"""A process may end right after its last request (docs/adr/0002-obstore-bridge.md)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.store.servers import s3_server
from tests.paths import REPOSITORY

RUNS = 8
"""An abort in four of ten runs would be missed once in sixty times."""

PROGRAM = """
import asyncio, sys
from shale.env import Env
from shale.store.connect import connect
from shale.store.options import StoreOptions

async def main(url, endpoint):
    config = {"endpoint": endpoint, "access_key_id": "t", "secret_access_key": "t", "region": "us-east-1"}
    store = connect(url, Env.system(), None, StoreOptions(config=config if endpoint else {}))
    await store.put("db/a", b"hello" * 100)
    assert bytes(await store.get_range("db/a", 0, 5)) == b"hello"
    await store.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


def run(url: str, endpoint: str) -> subprocess.CompletedProcess[bytes]:
    shared = REPOSITORY / "shared"
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, url, endpoint],
        env={"PYTHONPATH": str(shared)},
        capture_output=True,
        check=False,
    )


def test_no_abort_after_the_last_request_to_s3() -> None:
    with s3_server("exits") as endpoint:
        results = [run("s3://exits", endpoint) for _ in range(RUNS)]
    assert [result.returncode for result in results] == [0] * RUNS, results[0].stderr.decode()


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_no_abort_after_the_last_request_elsewhere(scheme: str, tmp_path: Path) -> None:
    result = run(f"file://{tmp_path}" if scheme == "file" else "memory:///", "")
    assert (result.returncode, result.stderr) == (0, b"")
