"""The writer as a process: rows that survive a kill, fencing, stops."""

import http.client
import threading
import time
from pathlib import Path

import pytest

from tests.integration.daemons.daemon_process import ENDED_S, running
from tests.integration.writer.writer_process import kv, writer


@pytest.mark.slow
def test_rows_survive_a_kill(tmp_path: Path) -> None:
    """Every acknowledged row exists after SIGKILL, and again after the next one."""
    written: dict[bytes, bytes] = {}
    for turn in range(3):
        with writer(tmp_path, log=f"log{turn}") as client:
            for key, value in written.items():
                assert client.get(key)[1] == value
            for row in range(5):
                key, value = b"row/%d/%d" % (turn, row), b"%d" % row
                assert client.put(key, value)[0] == 204
                written[key] = value
            client.daemon.process.kill()
            client.daemon.process.wait()


def test_the_replaced_writer_is_fenced_and_says_so(tmp_path: Path) -> None:
    # Its write meets the new writer, and not its next look at the manifest, after which it ends.
    with writer(tmp_path, "--set", "manifest_poll_interval=1h", log="old") as old:
        assert old.put(b"a", b"old")[0] == 204
        with writer(tmp_path, log="new") as new:
            assert new.get(b"a")[1] == b"old"
            status = old.put(b"a", b"stale")[0]
            assert status == 421
            assert old.daemon.process.wait(ENDED_S) == 80
            assert [line["level"] for line in old.daemon.lines("writer.fenced")] == ["warning"]
            assert not [line for line in old.daemon.lines() if line["level"] == "error"]
            assert new.get(b"a")[1] == b"old"
            assert new.put(b"a", b"new")[0] == 204
            assert new.daemon.stop() == 0


@pytest.mark.slow
def test_an_idle_writer_that_was_replaced_ends_as_well(tmp_path: Path) -> None:
    with writer(tmp_path, log="old") as old, writer(tmp_path, log="new") as new:
        assert old.daemon.process.wait(ENDED_S) == 80
        assert new.put(b"a", b"1")[0] == 204


def test_a_stop_brings_memory_writes_to_the_store(tmp_path: Path) -> None:
    with writer(tmp_path, "--set", "flush_interval=1h", log="one") as client:
        assert client.put(b"a", b"1", X_Shale_Durability="memory")[0] == 204
        assert client.daemon.stop() == 0
        assert [line["event"] for line in client.daemon.lines()][-3:] == [
            "shutdown.started",
            "db.closed",
            "shutdown.done",
        ]
    with writer(tmp_path, log="two") as client:
        assert client.get(b"a")[1] == b"1"


def test_a_stop_lets_running_requests_end(tmp_path: Path) -> None:
    with writer(tmp_path, "--set", "flush_interval=2s") as client:
        answers: list[int] = []
        request = threading.Thread(target=lambda: answers.append(client.put(b"slow", b"1")[0]))
        request.start()
        time.sleep(0.3)
        assert client.daemon.stop() == 0
        request.join()
        assert answers == [204]


def test_kept_connections_end_with_the_stop(tmp_path: Path) -> None:
    with writer(tmp_path) as client:
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
        connection.request("PUT", kv(b"a"), b"1")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 204
        start = time.monotonic()
        assert client.daemon.stop() == 0
        assert time.monotonic() - start < 5
        connection.close()


def test_flush_on_the_admin_port(tmp_path: Path) -> None:
    with writer(tmp_path, "--set", "flush_interval=1h") as client:
        client.put(b"a", b"1", X_Shale_Durability="memory")
        flushed = client.daemon.request("POST", "/v1/admin/flush", port=client.admin_port)
        assert flushed[0] == 204
        client.daemon.process.kill()
        client.daemon.process.wait()
    with writer(tmp_path, log="two") as client:
        assert client.get(b"a")[1] == b"1"


@pytest.mark.slow
def test_a_scan_that_runs_does_not_stop_the_stop(tmp_path: Path) -> None:
    with writer(tmp_path, "--set", "shutdown.request_timeout=1s") as client:
        for part in range(8):
            ops = [["put", b"%d/%05d" % (part, row), b"x" * 1000] for row in range(4000)]
            assert client.post("/v1/batch", {"ops": ops}, packed=True)[0] == 200
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
        connection.request("POST", "/v1/scan", b"{}")
        answer = connection.getresponse()
        answer.read(100)
        start = time.monotonic()
        assert client.daemon.stop() == 0
        assert time.monotonic() - start < 10
        connection.close()


def test_bad_engine_settings_are_one_line(tmp_path: Path) -> None:
    args = ("--url", f"file://{tmp_path}/store/orders", "--set", "l0_sst_size_bytes=2GiB")
    with running("shale_writer", *args, log=tmp_path / "log") as daemon:
        assert daemon.process.wait(ENDED_S) == 78
        (line,) = daemon.log.read_text().splitlines()
        assert "max_unflushed_bytes must be greater than l0_sst_size_bytes" in line
