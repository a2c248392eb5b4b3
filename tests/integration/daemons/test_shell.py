"""The shell of the daemons, as processes: ports, signals, exit codes, the first line."""

import contextlib
import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.daemons.daemon_process import ENDED_S, Daemon, metric, running
from tests.integration.store.servers import nobody_listening

IDLE = "tests.integration.daemons.idle_daemon"
URL = ("--url", "memory:///orders")
WAIT_S = 60.0
TURNS = pytest.mark.parametrize("turns", [2, pytest.param(50, marks=pytest.mark.soak)])


def wait_for_metric(daemon: Daemon, name: str, is_right: Callable[[float], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_right(value := metric(daemon.get("/metrics", port=daemon.port("admin_port"))[1], name)):
        assert time.monotonic() < deadline, f"{name} is {value}"
        time.sleep(0.02)


def test_the_admin_port_answers(tmp_path: Path) -> None:
    with running(IDLE, *URL, log=tmp_path / "log") as daemon:
        port = daemon.port("admin_port")
        assert daemon.get("/livez", port=port) == (200, "ok\n")
        assert daemon.get("/readyz", port=port) == (200, "ok\n")
        assert daemon.get("/startupz", port=port)[0] == 200
        status, verbose = daemon.get("/readyz?verbose", port=port)
        assert status == 200
        assert set(json.loads(verbose)["checks"]) == {"state", "store", "store_writes"}
        statusz = json.loads(daemon.get("/statusz", port=port)[1])
        assert (statusz["role"], statusz["db"], statusz["state"]) == ("gc", "orders", "active")
        text = daemon.get("/metrics", port=port)[1]
        assert metric(text, "shale_build_info") == 1
        assert 'shale_role{role="active"} 1.0' in text
        assert metric(text, "process_resident_memory_bytes") > 0
        assert "python_gc_collections_total" in text
        wait_for_metric(daemon, "shale_event_loop_lag_seconds_count", lambda count: count >= 1)
        openmetrics = daemon.get("/metrics", port=port, headers={"Accept": "application/openmetrics-text"})[1]
        assert openmetrics.endswith("# EOF\n")
        assert "_created" not in openmetrics
        assert 'slatedb_object_store_up{component="gc",db="orders"} 1.0' in text
        _, _, headers = daemon.request("GET", "/livez", port=port)
        assert headers["cache-control"] == "no-store"


def test_connections_of_one_address_to_the_admin_port_are_limited(tmp_path: Path) -> None:
    """They need no token, and take file descriptors from the data ports."""
    with running(IDLE, *URL, log=tmp_path / "log") as daemon, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", daemon.port("admin_port"))
        held = [stack.enter_context(socket.create_connection(address, WAIT_S)) for _ in range(129)]
        answer = b""
        with contextlib.suppress(ConnectionError):
            while data := held[-1].recv(1 << 16):
                answer += data
        assert answer.startswith(b"HTTP/1.1 429 ")
        held[0].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert held[0].recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        stack.close()
        deadline = time.monotonic() + WAIT_S
        while daemon.get("/livez", port=address[1])[0] != 200:
            assert time.monotonic() < deadline


def test_the_log_level_changes_at_run_time(tmp_path: Path) -> None:
    with running(IDLE, *URL, log=tmp_path / "log") as daemon:
        port = daemon.port("admin_port")
        put = daemon.request("PUT", "/v1/admin/log-level", port=port, body=b'{"level": "debug"}')
        assert json.loads(put[1]) == {"level": "debug"}
        assert daemon.request("PUT", "/v1/admin/log-level", port=port, body=b'"loud"')[0] == 400
        assert json.loads(daemon.get("/v1/admin/log-level", port=port)[1]) == {"level": "debug"}


@TURNS
def test_it_starts_and_stops_with_0_every_time(tmp_path: Path, turns: int) -> None:
    for turn in range(turns):
        number = (signal.SIGTERM, signal.SIGINT)[turn % 2]
        with running(IDLE, *URL, log=tmp_path / f"log{turn}") as daemon:
            daemon.wait_for("daemon.ready")
            assert daemon.stop(number) == 0, daemon.log.read_text()
            assert [line["event"] for line in daemon.lines()][-2:] == ["shutdown.started", "shutdown.done"]


def test_a_stop_during_the_start_is_a_stop(tmp_path: Path) -> None:
    """The first signal may arrive before the daemon is ready; it never causes a traceback."""
    with running(IDLE, *URL, log=tmp_path / "log") as daemon:
        daemon.wait_for("daemon.started")
        assert daemon.stop() in (0, -signal.SIGTERM)
        assert "Traceback" not in daemon.log.read_text()


def test_readiness_goes_first_and_the_second_signal_ends_at_once(tmp_path: Path) -> None:
    with running(IDLE, *URL, log=tmp_path / "log", env={"STOP_S": "20"}) as daemon:
        port = daemon.port("admin_port")
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait_for("shutdown.started")
        assert daemon.get("/readyz", port=port) == (503, "draining\n")
        assert daemon.get("/livez", port=port)[0] == 200
        assert daemon.stop(signal.SIGTERM) == 143


def test_a_stop_that_takes_too_long_is_cut(tmp_path: Path) -> None:
    with running(IDLE, *URL, "--set", "shutdown.deadline=300ms", log=tmp_path / "log", env={"STOP_S": "20"}) as daemon:
        daemon.wait_for("daemon.ready")
        assert daemon.stop() == 75
        assert daemon.lines("shutdown.incomplete")[0]["level"] == "error"


@pytest.mark.slow
def test_even_a_stop_that_ignores_its_end_ends(tmp_path: Path) -> None:
    env = {"STOP_S": "60", "STUBBORN": "1"}
    with running(IDLE, *URL, "--set", "shutdown.deadline=300ms", log=tmp_path / "log", env=env) as daemon:
        daemon.wait_for("daemon.ready")
        assert daemon.stop(timeout_s=45) == 75


@pytest.mark.parametrize(
    ("env", "code", "event"),
    [
        ({"FAIL": "FencedError"}, 80, "shutdown.done"),
        ({"FAIL": "CorruptionError"}, 65, "daemon.failed"),
        ({"FAIL": "ProtocolPanic"}, 70, "protocol.panic"),
        ({"FAIL": "UnavailableError"}, 75, "daemon.failed"),
        ({"FAIL_BEFORE_READY": "UnavailableError"}, 69, "daemon.failed"),
        ({"FAIL_BEFORE_READY": "NotFoundError"}, 69, "daemon.failed"),
        ({"FAIL": "ClosedError"}, 1, "daemon.failed"),
    ],
)
def test_an_error_at_the_top_is_one_line_and_a_code(tmp_path: Path, env: dict[str, str], code: int, event: str) -> None:
    with running(IDLE, *URL, log=tmp_path / "log", env=env) as daemon:
        assert daemon.process.wait(ENDED_S) == code
        last = daemon.lines()[-1]
        assert last["event"] == event
        assert last["exit_code"] == code
        assert ("exception" in last) == (code == 1)


def test_bad_settings_are_one_line_each_and_78(tmp_path: Path) -> None:
    with running(IDLE, "--set", "log.levl=info", *URL, "--log-level", "loud", log=tmp_path / "log") as daemon:
        assert daemon.process.wait(ENDED_S) == 78
        lines = daemon.log.read_text().splitlines()
        assert len(lines) == 2
        assert "shale gc: log.levl: no such setting; did you mean level? (option --set log.levl)" in lines


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running(IDLE, *URL, "--set", f"admin.port={port}", log=tmp_path / "log", env={}) as daemon:
            daemon.process.wait(ENDED_S)
            text = daemon.log.read_text()
    assert daemon.process.returncode == 78
    assert f"admin.port: cannot listen on 127.0.0.1:{port}" in text


def test_hup_reads_the_settings_again(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[log]\nlevel = 'info'\n")
    with running(IDLE, *URL, "--config", str(file), log=tmp_path / "log") as daemon:
        port = daemon.port("admin_port")
        file.write_text("[log]\nlevel = 'debug'\n[task]\ninterval = 2\n[metrics]\nsample_rate = 0.5\n")
        daemon.process.send_signal(signal.SIGHUP)
        line = daemon.wait_for("config.reloaded")
        assert line["key"] == ["log.level", "metrics.sample_rate", "task.interval"]
        assert line["restart_needed"] == ["task.interval"]
        wait_for_metric(daemon, "shale_metrics_sample_ratio", lambda ratio: ratio == 0.5)
        assert json.loads(daemon.get("/v1/admin/log-level", port=port)[1]) == {"level": "debug"}
        file.write_text("[log]\nlevel = 'loud'\n")
        daemon.process.send_signal(signal.SIGHUP)
        wait_for_metric(daemon, "shale_config_last_reload_success", lambda success: success == 0)
        assert daemon.stop() == 0


def test_an_unreachable_store_is_69(tmp_path: Path) -> None:
    env = {"AWS_ACCESS_KEY_ID": "t", "AWS_SECRET_ACCESS_KEY": "t", "AWS_REGION": "us-east-1"}
    with nobody_listening() as port:
        args = ("--url", "s3://bucket/orders", "--set", f"store.endpoint=http://127.0.0.1:{port}")
        with running(IDLE, *args, "--set", "store.start_timeout=2s", log=tmp_path / "log", env=env) as daemon:
            assert daemon.process.wait(ENDED_S) == 69
            assert "s3://bucket" in daemon.lines("daemon.failed")[0]["error"]


def test_an_unwritable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with running(IDLE, "--url", f"file://{tmp_path}/file/orders", log=tmp_path / "log") as daemon:
        assert daemon.process.wait(ENDED_S) == 78
        [line] = daemon.lines("daemon.failed")
        assert line["exit_code"] == 78
        assert line["error"].startswith(f"file://{tmp_path}/file/")
        assert line["error"].endswith("Not a directory")
        assert [path.name for path in tmp_path.iterdir() if path.name != "log"] == ["file"]
