"""A writer whose file system is full: it is told at once, readiness follows after the grace, and space is enough."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.daemons.daemon_process import metric
from tests.integration.writer.writer_process import Client, writer

WAIT_S = 30.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 16 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "shale-test", str(disk)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"mount is not permitted: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _fill(disk: Path) -> Path:
    """Leave no block free."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 16)):
                pass
        except OSError:
            pass
    return filler


def _wait_until(is_right: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_right():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def _readyz(client: Client) -> tuple[int, dict[str, dict[str, object]]]:
    status, text = client.daemon.get("/readyz?verbose", port=client.admin_port)
    return status, json.loads(text)["checks"]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize("has_wal", [True, False])
def test_a_full_disk_ends_readiness_and_space_restores_it(small_disk: Path, has_wal: bool) -> None:
    """The store answers every read, and refuses every write: the probe of the store sees nothing.

    Without a WAL it is the upload of an L0 SST that fails.
    """
    settings = ("--set", "ready.grace=1s", "--set", f"wal_enabled={str(has_wal).lower()}")
    with writer(small_disk, *settings, log="../log") as client:
        assert client.put(b"before", b"1", X_Shale_Durability="memory")[0] == 204
        assert _readyz(client)[0] == 200
        filler = _fill(small_disk)
        answers: list[int] = []

        def write() -> None:
            """Return when the row is durable."""
            if has_wal:
                answers.append(client.put(b"during", b"2")[0])
                return
            client.put(b"during", b"2", X_Shale_Durability="memory")
            answers.append(client.daemon.request("POST", "/v1/admin/flush", port=client.admin_port)[0])

        put = threading.Thread(target=write)
        put.start()

        warning = client.daemon.wait_for("store.request.failing", WAIT_S)
        assert warning["level"] == "warning"
        assert "No space left on device" in warning["error"]
        assert f"/orders/{'wal' if has_wal else 'compacted'}/" in warning["error"], "it names the object"
        assert warning["attempts"] == 1, "at once"

        error = client.daemon.wait_for("store.writes.failing", WAIT_S)
        assert error["level"] == "error"
        assert "No space left on device" in error["error"]
        _wait_until(lambda: _readyz(client)[0] == 503, "not ready after the grace")
        check = _readyz(client)[1]["store_writes"]
        assert not check["ok"]
        assert "No space left on device" in str(check["message"])
        assert _readyz(client)[1]["store"]["ok"], "the store is reached"
        assert metric(client.metrics(), "slatedb_object_store_write_failing_seconds") >= 1

        filler.unlink()
        _wait_until(lambda: _readyz(client)[0] == 200, "ready again")
        put.join(WAIT_S)
        assert answers == [204]
        recovered = client.daemon.wait_for("store.writes.recovered", WAIT_S)
        assert recovered["level"] == "info"
        assert metric(client.metrics(), "slatedb_object_store_write_failing_seconds") == 0
        assert client.get(b"during")[1] == b"2"
        assert client.daemon.stop() == 0
