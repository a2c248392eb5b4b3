"""A program that embeds the engine ends with exit code 0, every time.

An event loop that closes right after an answer from the object-store library can abort the process without a word
(docs/adr/0002); closing a store must make that impossible.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.store.servers import s3_environment, s3_server
from tests.paths import REPOSITORY

RUNS = 3
SOAK_RUNS = 200

PROGRAM = """
import asyncio, sys
import shale

async def main():
    async with shale.Db.open(sys.argv[1]) as db:
        await db.put(b"key", b"value")
        assert await db.get(b"key") == b"value"

asyncio.run(main())
"""


def run_program(url: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM, url],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "shared"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def assert_runs_end_well(runs: int, url_of_run, environment: dict[str, str]) -> None:
    for number in range(runs):
        done = run_program(url_of_run(number), environment)
        assert (done.returncode, done.stderr) == (0, ""), f"run {number} of {runs}"


@pytest.mark.slow
@pytest.mark.parametrize("runs", [RUNS, pytest.param(SOAK_RUNS, marks=pytest.mark.soak)])
def test_on_a_directory(runs: int, tmp_path: Path) -> None:
    """Twenty runs share one database, so each also replays the WAL of the one before."""
    assert_runs_end_well(runs, lambda number: f"file://{tmp_path}/db{number // 20}", {})


@pytest.mark.slow
@pytest.mark.parametrize("runs", [RUNS, pytest.param(SOAK_RUNS, marks=pytest.mark.soak)])
def test_on_s3(runs: int) -> None:
    with s3_server("ends") as url:
        assert_runs_end_well(runs, lambda number: f"s3://ends/db{number // 20}", s3_environment(url))
