"""Loads whose tasks or driver die: the database has the result of one load, or is unchanged."""

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import shale
from tests.integration.spark.load.flaky_codec import BEGUN, DIE_AFTER
from tests.paths import PYTHONPATH

ROWS = 20_000

pytestmark = pytest.mark.soak


def driver(folder: Path, **env: str) -> "subprocess.Popen[str]":
    """Start a session in a process group that can be killed."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.integration.spark.load.driver_process", f"file://{folder}/db", str(ROWS)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONPATH": PYTHONPATH, **env},
            cwd=folder,
        )


def finished(process: "subprocess.Popen[str]") -> tuple[int, int]:
    """Return the rows and SSTs that a load reports."""
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    rows, ssts = out.split()[-2:]
    return int(rows), int(ssts)


def check(folder: Path, ssts: int) -> None:
    async def read() -> dict[bytes, bytes]:
        async with shale.DbReader.open(f"file://{folder}/db") as reader:
            return {row.key: row.value async for row in reader.scan()}

    numbers = [str(number).encode() for number in range(ROWS)]
    assert asyncio.run(read()) == {hashlib.sha256(number).digest(): number for number in numbers}
    manifest = asyncio.run(manifest_of(folder))
    assert len(manifest.ssts()) == ssts


async def manifest_of(folder: Path) -> shale.types.Manifest:
    async with shale.Db.open(f"file://{folder}/db") as db:
        return db.status.manifest


def stored(folder: Path) -> int:
    return len(list((folder / "db" / "compacted").glob("*.sst")))


def test_workers_that_die_leave_garbage_and_are_replaced(tmp_path: Path) -> None:
    """Each task's first attempt is killed after some SSTs."""
    rows, ssts = finished(driver(tmp_path, **{DIE_AFTER: "3000"}))
    assert rows == ROWS
    assert stored(tmp_path) > ssts
    check(tmp_path, ssts)


def test_a_driver_that_is_killed_leaves_no_database(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    victim = driver(tmp_path, **{BEGUN: str(begun)})
    deadline = time.monotonic() + 120
    while not (begun.exists() and stored(tmp_path)):
        assert victim.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    victim.kill()
    victim.communicate()
    assert not (tmp_path / "db" / "manifest").exists()
    rows, ssts = finished(driver(tmp_path))
    assert rows == ROWS
    check(tmp_path, ssts)
