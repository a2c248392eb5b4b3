"""``shale up``: four daemons, one command."""

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.integration.cli.commands import program, running, shale

WAIT_S = 60


def is_alive(pid: object) -> bool:
    try:
        os.kill(int(str(pid)), 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_and_down(tmp_path: Path, number: signal.Signals) -> None:
    url = f"file://{tmp_path}/db"
    with running(url) as (child, processes):
        assert list(processes) == ["writer", "compactor", "gc", "reader"]
        request = urllib.request.Request(f"{processes['writer']['data']}/v1/kv/a", data=b"1", method="PUT")
        with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
            assert reply.status in (200, 201, 204)
        with urllib.request.urlopen(f"{processes['reader']['data']}/openapi.json", timeout=WAIT_S) as reply:
            assert reply.status == 200
        for process in processes.values():
            with urllib.request.urlopen(f"{process['admin']}/readyz", timeout=WAIT_S) as reply:
                assert reply.status == 200
        admin = str(processes["gc"]["admin"]).removeprefix("http://")
        assert shale("healthcheck", "--admin", admin).returncode == 0
        child.send_signal(number)
        _, errors = child.communicate(timeout=WAIT_S)
        assert child.returncode == 0, errors.decode()
        assert not any(is_alive(process["pid"]) for process in processes.values())
    assert shale("kv", "get", "a", "--raw", "-u", url).stdout == b"1"


@pytest.mark.slow
def test_daemons_with_tls_are_found_and_shown(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    url = f"file://{tmp_path}/db"
    files = {"SHALE_TLS__CERT_FILE": str(certificate), "SHALE_TLS__KEY_FILE": str(key)}
    with running(url, **files) as (_, processes):
        addresses = [str(each[port]) for each in processes.values() for port in ("data", "admin") if each[port]]
        assert len(addresses) == 6
        assert all(address.startswith("https://127.0.0.1:") for address in addresses)
        writer = str(processes["writer"]["data"]).replace("127.0.0.1", "localhost")
        request = urllib.request.Request(f"{writer}/v1/kv/a", data=b"1", method="PUT")
        with urllib.request.urlopen(request, timeout=WAIT_S, context=authority.client()) as reply:
            assert reply.status == 204


@pytest.mark.slow
def test_one_death_ends_all(tmp_path: Path) -> None:
    with running(f"file://{tmp_path}/db") as (child, processes):
        os.kill(int(str(processes["compactor"]["pid"])), signal.SIGKILL)
        _, errors = child.communicate(timeout=WAIT_S)
        assert child.returncode == 128 + signal.SIGKILL
        assert b"compactor ended with exit code 137" in errors
        assert not any(is_alive(process["pid"]) for process in processes.values())


def test_nothing_is_started_on_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        refused = shale("up", "--port", "0", "--admin-port", str(port), "-u", f"file://{tmp_path}/db")
    assert refused.returncode == 78
    assert f"port {port} for the writer is in use" in refused.stderr.decode()
    assert list(tmp_path.iterdir()) == []


def test_a_healthcheck_without_a_process() -> None:
    result = shale("healthcheck", "--admin", "127.0.0.1:1")
    assert result.returncode == 4
    assert b"127.0.0.1:1/readyz" in result.stderr


@pytest.mark.parametrize("process", ["writer", "compactor", "gc", "reader"])
def test_processes_are_commands(process: str) -> None:
    refused = program(process, "--url", "nonsense")
    assert (refused.returncode, refused.stdout) == (78, b"")
    assert refused.stderr.count(b"\n") == 1


def test_processes_tell_their_options() -> None:
    result = shale("reader", "--help")
    assert result.returncode == 0
    assert b"shale reader" in result.stdout


@pytest.mark.slow
def test_rows_are_written_through_the_running_writer(tmp_path: Path) -> None:
    """No daemon is fenced, whichever command writes."""
    url, rows = f"file://{tmp_path}/db", tmp_path / "rows.ndjson"
    rows.write_text("".join(f'{{"key": "row/{number}", "value": "{number}"}}\n' for number in range(2500)))
    with running(url) as (child, processes):
        written = shale("kv", "put", "a", "1", "-u", url)
        assert json.loads(written.stdout)["seq"] == 1
        assert f"writing through the writer at {processes['writer']['data']}" in written.stderr.decode()
        assert json.loads(shale("kv", "import", str(rows), "-u", url).stdout)["rows"] == 2500
        assert json.loads(shale("kv", "delete", "--prefix", "row/1", "--yes", "-u", url).stdout)["deleted"] == 1111
        assert shale("kv", "delete", "row/2", "-u", url).returncode == 0
        assert shale("kv", "put", "b", "2", "--endpoint", str(processes["writer"]["data"]), "-u", url).returncode == 0
        assert child.poll() is None
        for process in processes.values():
            with urllib.request.urlopen(f"{process['admin']}/readyz", timeout=WAIT_S) as reply:
                assert reply.status == 200
        child.send_signal(signal.SIGTERM)
        _, errors = child.communicate(timeout=WAIT_S)
        assert child.returncode == 0, errors.decode()
    counted = json.loads(shale("kv", "scan", "--count", "-u", url, "-o", "json").stdout)
    assert counted["rows"] == 2 + 2500 - 1111 - 1
    assert shale("kv", "get", "a", "--raw", "-u", url).stdout == b"1"


@pytest.mark.slow
def test_any_setting_of_the_daemons_can_be_given(tmp_path: Path) -> None:
    options = ("--set", "resp.enabled=true", "--set", "resp.port=0", "--set", "writer.http.max_batch_rows=1")
    with running(f"file://{tmp_path}/db", *options) as (child, processes):
        body = b'{"ops": [["delete", "YQ=="], ["delete", "Yg=="]]}'
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{processes['writer']['data']}/v1/batch", data=body, headers=headers)
        with pytest.raises(urllib.error.HTTPError, match="413"):
            urllib.request.urlopen(request, timeout=WAIT_S)
        child.send_signal(signal.SIGTERM)
        _, errors = child.communicate(timeout=WAIT_S)
    assert child.returncode == 0
    assert errors.count(b"resp_port") == 2


def test_a_setting_that_no_daemon_has_starts_none(tmp_path: Path) -> None:
    refused = shale("up", "--set", "resp.enable=true", "-u", f"file://{tmp_path}/db")
    assert (refused.returncode, refused.stderr.count(b"\n")) == (2, 1)
    assert b"resp.enabled" in refused.stderr
    assert list(tmp_path.iterdir()) == []
