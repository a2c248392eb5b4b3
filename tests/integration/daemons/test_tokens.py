"""Tokens of a running writer: secret files, all ports, rotation by SIGHUP."""

import signal
from pathlib import Path

import pytest
import redis

from shale.core.token_hash import token_hash
from tests.integration.writer.writer_process import Client, writer

RESP = ("--set", "resp.enabled=true", "--set", "resp.port=0")


def status(client: Client, method: str, path: str, token: str | None, port: int) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return client.daemon.request(method, path, port=port, body=b"1" if method == "PUT" else None, headers=headers)[0]


def reload(client: Client, times: int) -> None:
    """Send SIGHUP and wait until the settings were read."""
    client.daemon.process.send_signal(signal.SIGHUP)
    while len(client.daemon.lines("config.reloaded")) < times:
        client.daemon.get("/livez", port=client.admin_port)


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


def assert_resp(client: Client, reading: str, writing: str) -> None:
    """Check what two passwords may do on the Redis port."""
    port = client.daemon.port("resp_port")
    with redis.Redis(port=port, password=writing) as one:
        assert one.set("k", "1")
    with redis.Redis(port=port, username="read", password=reading) as one:
        assert one.get("k") == b"1"
        with pytest.raises(redis.exceptions.NoPermissionError):
            one.set("k", "2")
