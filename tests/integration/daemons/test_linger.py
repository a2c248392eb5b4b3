"""A daemon that ends with an error that a restart does not cure stays for one scrape (docs/concepts/shutdown.md)."""

import json
import signal
import time
import urllib.error
from pathlib import Path

import pytest

from tests.integration.daemons.daemon_process import ENDED_S, Daemon, metric, running
from tests.integration.writer.writer_process import writer

IDLE = "tests.integration.daemons.idle_daemon"
URL = ("--url", "memory:///orders")
LONG = ("--set", "shutdown.linger=10m")
SCRAPE = {"X-Prometheus-Scrape-Timeout-Seconds": "10"}


def admin_port(daemon: Daemon) -> int:
    return int(daemon.wait_for("daemon.lingering")["admin_port"])


def assert_serves_its_end_only(daemon: Daemon, code: int, state: str) -> str:
    """Check every kind of request; return the metrics."""
    port = admin_port(daemon)
    assert daemon.get("/livez", port=port) == (200, "ok\n")
    assert daemon.get("/readyz", port=port) == (503, f"{state}\n")
    status = json.loads(daemon.get("/statusz", port=port)[1])
    assert (status["state"], status["ready"], status["exit_code"]) == (state, False, code)
    refused = daemon.request("PUT", "/v1/admin/log-level", port=port, body=b'{"level": "debug"}')
    assert refused[0] == 503
    assert f"exits with {code}" in json.loads(refused[1])["detail"]
    text = daemon.get("/metrics", port=port)[1]
    assert metric(text, "shale_exit_code") == code
    assert f'shale_role{{role="{state}"}} 1.0' in text
    return text


@pytest.mark.slow
def test_a_fenced_writer_is_scraped_and_refuses_everything(tmp_path: Path) -> None:
    with writer(tmp_path, *LONG, log="old") as old:
        assert old.put(b"a", b"old")[0] == 204
        with writer(tmp_path, log="new") as new:
            text = assert_serves_its_end_only(old.daemon, 80, "fenced")
            assert 'slatedb_fenced_total{component="writer",db="orders"} 1.0' in text
            with pytest.raises(urllib.error.URLError):
                old.put(b"a", b"stale")
            assert new.put(b"a", b"new")[0] == 204
            assert old.daemon.stop() == 80
            assert new.get(b"a")[1] == b"new"


def test_a_corrupt_manifest_at_open_is_scraped(tmp_path: Path) -> None:
    with writer(tmp_path, log="first") as first:
        assert first.put(b"a", b"1")[0] == 204
        assert first.daemon.stop() == 0
    manifest = max((tmp_path / "store" / "orders" / "manifest").iterdir())
    manifest.write_bytes(b"no manifest")
    place = ("--url", f"file://{tmp_path}/store/orders", "--port", "0")
    with running("shale_writer", *place, *LONG, log=tmp_path / "second") as second:
        text = assert_serves_its_end_only(second, 65, "failed")
        assert 'slatedb_corruption_total{db="orders",resource="manifest"} 1.0' in text
        assert second.stop() == 65


@pytest.mark.parametrize(("error", "code"), [("ProtocolPanic", 70), ("InvalidRequestError", 78), ("StoreUnsafe", 81)])
def test_each_permanent_failure_lingers(tmp_path: Path, error: str, code: int) -> None:
    with running(IDLE, *URL, *LONG, log=tmp_path / "log", env={"FAIL": error}) as daemon:
        assert_serves_its_end_only(daemon, code, "failed")
        assert daemon.stop(signal.SIGINT) == code


def test_it_ends_by_itself_with_the_same_code(tmp_path: Path) -> None:
    linger = ("--set", "shutdown.linger=300ms")
    with running(IDLE, *URL, *linger, log=tmp_path / "log", env={"FAIL": "CorruptionError"}) as daemon:
        daemon.wait_for("daemon.lingering")
        assert daemon.process.wait(ENDED_S) == 65


def test_it_ends_after_its_last_metrics_were_scraped(tmp_path: Path) -> None:
    with running(IDLE, *URL, *LONG, log=tmp_path / "log", env={"FAIL": "CorruptionError"}) as daemon:
        port = admin_port(daemon)
        for path in ("/livez", "/readyz", "/statusz", "/metrics"):
            daemon.get(path, port=port)
        assert daemon.process.poll() is None, "a probe, or a reader other than Prometheus, counts as a scrape"
        text = daemon.get("/metrics", port=port, headers=SCRAPE)[1]
        assert metric(text, "shale_exit_code") == 65
        assert daemon.process.wait(ENDED_S) == 65
        (ended,) = daemon.lines("daemon.lingering_ended")
        assert (ended["scrapes"], ended["reason"]) == (1, "scraped")


def test_it_waits_for_as_many_scrapes_as_set(tmp_path: Path) -> None:
    settings = (*LONG, "--set", "shutdown.linger_scrapes=2")
    with running(IDLE, *URL, *settings, log=tmp_path / "log", env={"FAIL": "CorruptionError"}) as daemon:
        port = admin_port(daemon)
        daemon.get("/metrics", port=port, headers=SCRAPE)
        assert daemon.get("/livez", port=port) == (200, "ok\n")
        daemon.get("/metrics", port=port, headers=SCRAPE)
        assert daemon.process.wait(ENDED_S) == 65


def test_with_zero_scrapes_it_stays_for_the_whole_time(tmp_path: Path) -> None:
    settings = (*LONG, "--set", "shutdown.linger_scrapes=0")
    with running(IDLE, *URL, *settings, log=tmp_path / "log", env={"FAIL": "CorruptionError"}) as daemon:
        port = admin_port(daemon)
        for _ in range(3):
            daemon.get("/metrics", port=port, headers=SCRAPE)
        assert daemon.get("/livez", port=port) == (200, "ok\n")
        assert daemon.stop() == 65


@pytest.mark.parametrize(("error", "code"), [("UnavailableError", 75), ("ClosedError", 1)])
def test_what_a_restart_may_cure_ends_at_once(tmp_path: Path, error: str, code: int) -> None:
    with running(IDLE, *URL, *LONG, log=tmp_path / "log", env={"FAIL": error}) as daemon:
        assert daemon.process.wait(ENDED_S) == code
        assert daemon.lines("daemon.lingering") == []


def test_a_failure_during_a_stop_does_not_linger(tmp_path: Path) -> None:
    env = {"FAIL_AT_STOP": "CorruptionError"}
    with running(IDLE, *URL, *LONG, log=tmp_path / "log", env=env) as daemon:
        daemon.wait_for("daemon.ready")
        start_s = time.monotonic()
        assert daemon.stop() == 65
        assert time.monotonic() - start_s < ENDED_S / 2
