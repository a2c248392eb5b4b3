"""Tokens of a running writer: secret files, all ports, rotation by SIGHUP."""

import signal
import socket
import time
from pathlib import Path

import pytest
import redis

from shale.core.token_hash import token_hash
from tests.integration.daemons.daemon_process import metric
from tests.integration.writer.writer_process import Client, writer

WAIT_S = 30.0
RESP = ("--set", "resp.enabled=true", "--set", "resp.port=0")


def status(client: Client, method: str, path: str, token: str | None, port: int) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return client.daemon.request(method, path, port=port, body=b"1" if method == "PUT" else None, headers=headers)[0]


def reload(client: Client, times: int) -> None:
    """Send SIGHUP and wait until the settings were read."""
    client.daemon.process.send_signal(signal.SIGHUP)
    while len(client.daemon.lines("config.reloaded")) < times:
        client.daemon.get("/livez", port=client.admin_port)


@pytest.mark.slow
def test_tokens_of_three_roles_are_rotated_without_a_restart(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for role in ("read", "write", "admin"):
        (secrets / f"tokens__{role}").write_text(f"{role}-1\n")
    with writer(tmp_path, *RESP, env={"SHALE_SECRETS_DIR": str(secrets)}) as client:
        data, admin = client.port, client.admin_port
        seen = {
            (token, method, path): status(client, method, path, token, port)
            for token in ("read-1", "write-1", "admin-1", None)
            for method, path, port in (
                ("PUT", "/v1/kv/a", data),
                ("GET", "/v1/kv/a", data),
                ("GET", "/v1/admin/log-level", admin),
                ("POST", "/v1/admin/flush", admin),
                ("GET", "/metrics", admin),
            )
        }
        by_token = {token: [code for key, code in seen.items() if key[0] == token] for token, _, _ in seen}
        assert by_token == {
            "read-1": [403, 404, 200, 403, 200],
            "write-1": [204, 200, 200, 403, 200],
            "admin-1": [204, 200, 200, 204, 200],
            None: [401, 401, 401, 401, 200],
        }
        assert_resp(client, "read-1", "write-1")

        (secrets / "tokens__write").write_text("write-1 write-2")
        reload(client, 1)
        assert [status(client, "PUT", "/v1/kv/a", f"write-{number}", data) for number in (1, 2)] == [204, 204]
        (secrets / "tokens__write").write_text(token_hash("write-2"))
        (secrets / "tokens__admin").unlink()
        reload(client, 2)
        assert [status(client, "PUT", "/v1/kv/a", f"write-{number}", data) for number in (1, 2)] == [401, 204]
        assert status(client, "POST", "/v1/admin/flush", "admin-1", admin) == 401
        assert_resp(client, "read-1", "write-2")
        stranger = redis.Redis(port=client.daemon.port("resp_port"), password="write-1")
        with stranger, pytest.raises(redis.AuthenticationError):
            stranger.get("a")
        log = client.daemon.log.read_text()
        assert "tokens.write" in log
        assert "write-2" not in log


def test_the_last_token_of_a_port_is_revoked_if_that_does_not_open_it(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("http", "admin"):
        (secrets / f"{name}__bearer_token").write_text(f"{name}-1")
    with writer(tmp_path, env={"SHALE_SECRETS_DIR": str(secrets)}) as client:
        data, admin = client.port, client.admin_port
        assert status(client, "POST", "/v1/admin/flush", "admin-1", admin) == 204
        (secrets / "admin__bearer_token").unlink()
        reload(client, 1)
        assert status(client, "POST", "/v1/admin/flush", "admin-1", admin) == 403
        assert client.daemon.lines("config.reloaded")[0]["restart_needed"] == []

        (secrets / "http__bearer_token").unlink()
        reload(client, 2)
        assert [status(client, "PUT", "/v1/kv/a", token, data) for token in ("http-1", None)] == [204, 401]
        assert client.daemon.lines("config.reloaded")[1]["restart_needed"] == ["http.bearer_token"]
        assert len(client.daemon.lines("auth.tokens.kept")) == 1


def test_the_first_token_applies_to_connected_redis_clients(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    with (
        writer(tmp_path, *RESP, env={"SHALE_SECRETS_DIR": str(secrets)}) as client,
        socket.create_connection(("127.0.0.1", client.daemon.port("resp_port"))) as old,
    ):
        old.settimeout(WAIT_S)
        old.sendall(b"SET a 1\r\n")
        assert old.recv(100) == b"+OK\r\n"
        (secrets / "tokens__write").write_text("w")
        reload(client, 1)
        old.sendall(b"SET a 2\r\n")
        assert old.recv(100).startswith(b"-NOAUTH")
        old.sendall(b"AUTH w\r\n")
        assert old.recv(100) == b"+OK\r\n"
        old.sendall(b"GET a\r\n")
        assert old.recv(100) == b"$1\r\n1\r\n"


def assert_resp(client: Client, reading: str, writing: str) -> None:
    """Check what two passwords may do on the Redis port."""
    port = client.daemon.port("resp_port")
    with redis.Redis(port=port, password=writing) as one:
        assert one.set("k", "1")
    with redis.Redis(port=port, username="read", password=reading) as one:
        assert one.get("k") == b"1"
        with pytest.raises(redis.exceptions.NoPermissionError):
            one.set("k", "2")


def test_failed_attempts_and_connections_of_an_address_are_limited(tmp_path: Path) -> None:
    limits = {"auth.failures_per_minute": 3, "http.max_connections_per_address": 5}
    settings = [f"--set={name}={limit}" for name, limit in limits.items()]
    settings.append("--set=resp.max_connections_per_address=2")
    with writer(tmp_path, *RESP, *settings, env={"SHALE_TOKENS__WRITE": "w"}) as client:
        data, admin = client.port, client.admin_port
        seen = [status(client, "GET", "/v1/kv/a", token, data) for token in ("x", None, "y", "z")]
        assert seen == [401, 401, 401, 429]
        assert status(client, "GET", "/v1/admin/log-level", "x", admin) == 429, "one limit for all ports"
        answer = client.daemon.request("GET", "/v1/kv/a", port=data, headers={"Authorization": "Bearer x"})
        assert 1 <= int(answer[2]["retry-after"]) <= 60
        assert answer[2]["connection"] == "close", "pipelined requests of this client are dropped"
        assert status(client, "PUT", "/v1/kv/a", "w", data) == 204, "a valid token is taken"
        assert client.daemon.get("/readyz", port=admin)[0] == 200
        assert metric(client.metrics(), "shale_auth_refusals_total") == 3

        port = client.daemon.port("resp_port")
        wrong, one, two, three = (redis.Redis(port=port, password=password) for password in ("wrong", "w", "w", "w"))
        with wrong, pytest.raises(redis.RedisError, match="too many"):
            wrong.get("a")
        with one, two, three:
            assert one.get("a") == two.get("a") == b"1"
            with pytest.raises(redis.RedisError, match="this address"):
                three.get("a")

        connections = [socket.create_connection(("127.0.0.1", data)) for _ in range(6)]
        connections[5].settimeout(WAIT_S)
        assert connections[5].recv(100).startswith(b"HTTP/1.1 429 ")
        for each in connections:
            each.close()
        deadline = time.monotonic() + WAIT_S
        while status(client, "GET", "/v1/kv/a", "w", data) != 200:
            assert time.monotonic() < deadline
