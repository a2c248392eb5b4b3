"""``shale writer promote``: a standby becomes the writer, and the command returns when it is."""

import contextlib
import signal
import socket
from pathlib import Path

import pytest

from shale_writer.standby.refusal import RESP_CONNECTIONS_MAX
from tests.integration.cli.commands import refusal
from tests.integration.cli.goldens import Golden
from tests.integration.daemons.daemon_process import ENDED_S
from tests.integration.standby.standby_process import pair


@pytest.fixture
def golden(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Golden:
    return Golden(capsys, monkeypatch, tmp_path)


@pytest.mark.slow
def test_promote(golden: Golden, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    with pair(tmp_path, env={"SHALE_ADMIN__BEARER_TOKEN": "secret"}) as (first, second):
        assert first.put(b"a", b"1") == 204
        admin = ("--admin", f"127.0.0.1:{second.admin_port}")
        code, said = refusal("writer", "promote", *admin)
        assert (code, "give --admin-token-file" in said) == (77, True), said
        assert second.readyz() == (503, "standby\n")
        golden.check("writer-promote", "writer", "promote", *admin, "--admin-token-file", str(token))
        second.daemon.wait_for("daemon.ready")
        assert second.get(b"a") == (200, b"1")
        assert first.daemon.process.wait(ENDED_S) == 80


def test_tokens_that_change_during_standby_hold_afterwards(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "tokens__write").write_text("old")
    admin = {"Authorization": "Bearer boss"}
    variables = {"SHALE_ADMIN__BEARER_TOKEN": "boss", "SHALE_SECRETS_DIR": str(secrets)}
    with pair(tmp_path, env=variables) as (_, second):
        daemon = second.daemon
        (secrets / "tokens__write").write_text("new")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for("config.reloaded")
        assert daemon.request("POST", "/v1/admin/promote", port=second.admin_port, headers=admin)[0] in (200, 202)
        daemon.wait_for("daemon.ready")
        for token, status in (("old", 401), ("new", 204)):
            sent = {"Authorization": f"Bearer {token}"}
            assert daemon.request("PUT", "/v1/kv/a", port=second.port, body=b"1", headers=sent)[0] == status


def test_without_an_answer_nothing_is_promoted() -> None:
    code, said = refusal("writer", "promote", "--admin", "127.0.0.1:1")
    assert (code, "http://127.0.0.1:1" in said) == (69, True), said


@pytest.mark.slow
def test_a_standby_limits_connections_as_the_writer_does(tmp_path: Path) -> None:
    limits = ("--set", "http.max_connections_per_address=2")
    with pair(tmp_path, *limits) as (_, second), contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(socket.create_connection(("127.0.0.1", second.port)))
        third = stack.enter_context(socket.create_connection(("127.0.0.1", second.port), timeout=ENDED_S))
        assert third.recv(1 << 16).startswith(b"HTTP/1.1 429 ")
        assert second.readyz() == (503, "standby\n")


@pytest.mark.slow
def test_a_standby_refuses_many_redis_clients_at_once(tmp_path: Path) -> None:
    with pair(tmp_path, "--set", "resp.enabled=true", "--set", "resp.port=0") as (_, second):
        port = int(second.daemon.wait_for("standby.started")["resp_port"])
        # A standby that gets little CPU closes the first of them before it accepts the last.
        for _ in range(10):
            said = _said_to(RESP_CONNECTIONS_MAX + 20, port)
            assert said[0].startswith(b"-TRYAGAIN this process is a standby")
            if b"" in said:
                return
        pytest.fail("a standby had an answer for each of many clients, ten times")


def _said_to(count: int, port: int) -> list[bytes]:
    """Return what the server says to each of ``count`` clients that are connected at the same time."""
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=ENDED_S)) for _ in range(count)
        ]
        return [_all_of(each) for each in clients]


def _all_of(client: socket.socket) -> bytes:
    try:
        return client.recv(1 << 16)
    except ConnectionResetError:
        return b""
