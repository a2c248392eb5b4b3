"""The writer on an S3 server: the same fencing as on a directory."""

import contextlib
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemons.daemon_process import ENDED_S, running
from tests.integration.store.servers import s3_server
from tests.integration.writer.writer_process import Client


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server("shale") as url:
        yield url


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


@pytest.mark.slow
def test_the_replaced_writer_is_fenced(endpoint: str, tmp_path: Path) -> None:
    with writer(endpoint, tmp_path / "old") as old, writer(endpoint, tmp_path / "new") as new:
        # It may have learnt of the other epoch by a poll, and have ended.
        with contextlib.suppress(urllib.error.URLError):
            assert old.put(b"a", b"stale")[0] == 421
        assert old.daemon.process.wait(ENDED_S) == 80
        assert new.put(b"a", b"1")[0] == 204
