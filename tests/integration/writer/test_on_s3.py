"""The writer on an S3 server: the same calls, and an end that is always 0 (docs/adr/0002)."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemons.running import ROOT, running
from tests.integration.writer.test_api import Client

ROUNDS = int(os.environ.get("SHALE_SOAK_ROUNDS", "3"))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "shale.testing.s3_server", "0", "--bucket", "shale"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "shared")},
    )
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


@contextlib.contextmanager
def writer(endpoint: str, log: Path, *args: str) -> Iterator[Client]:
    env = {
        "SHALE_STORE__ENDPOINT": endpoint,
        "SHALE_STORE__REGION": "us-east-1",
        "SHALE_STORE__ACCESS_KEY_ID": "shale",
        "SHALE_STORE__SECRET_ACCESS_KEY": "shale-local",
    }
    with running("shale_writer", "--url", "s3://shale/orders", "--port", "0", *args, log=log, env=env) as daemon:
        yield Client(daemon)


def test_it_starts_writes_and_stops_with_0_every_time(endpoint: str, tmp_path: Path) -> None:
    """The soak run does this 50 times; ending right after a request to the store once aborted the process."""
    for turn in range(ROUNDS):
        with writer(endpoint, tmp_path / f"log{turn}") as client:
            assert turn == 0 or client.get(b"turn")[1] == b"%d" % (turn - 1)
            assert client.put(b"turn", b"%d" % turn)[0] == 204
            assert client.daemon.stop() == 0, client.daemon.log.read_text()


def test_the_replaced_writer_is_fenced(endpoint: str, tmp_path: Path) -> None:
    with writer(endpoint, tmp_path / "old") as old, writer(endpoint, tmp_path / "new") as new:
        assert old.put(b"a", b"stale")[0] == 421
        assert old.daemon.process.wait(30) == 80
        assert new.put(b"a", b"1")[0] == 204
