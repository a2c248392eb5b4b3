"""Quotas of a running writer: both ports, one quota for each token, changed by SIGHUP."""

import signal
from pathlib import Path

import pytest
import redis

from tests.integration.daemons.daemon_process import metric
from tests.integration.writer.writer_process import Client, problem, writer

RESP = ("--set", "resp.enabled=true", "--set", "resp.port=0")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def put(client: Client, token: str) -> int:
    return client.put(b"a", b"1", **bearer(token))[0]


def test_a_token_over_its_quota_is_refused_on_both_ports_until_a_reload(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "tokens__write").write_text("w-1 w-2")
    quota = secrets / "quotas__write__requests_per_second"
    quota.write_text("0.001")
    with writer(tmp_path, *RESP, env={"SHALE_SECRETS_DIR": str(secrets)}) as client:
        assert put(client, "w-1") == 204
        refused = client.put(b"a", b"2", **bearer("w-1"))
        document = problem(refused, 429)
        assert (document["kind"], document["retryable"]) == ("unavailable", True)
        assert document["detail"].startswith("quotas.write is used up")
        assert 1 <= int(refused[2]["retry-after"]) < 1000
        port = client.daemon.port("resp_port")
        with (
            redis.Redis(port=port, password="w-1") as same,
            pytest.raises(redis.ResponseError, match=r"quotas\.write is used up"),
        ):
            same.set("a", "3")
        assert client.call("GET", "/v1/kv/a", **bearer("w-2"))[1] == b"1"
        assert metric(client.metrics(), 'shale_quota_refusals_total{db="orders",role="read"}') == 0
        assert metric(client.metrics(), 'shale_quota_refusals_total{db="orders",role="write"}') >= 2

        quota.write_text("0")
        client.daemon.process.send_signal(signal.SIGHUP)
        while not client.daemon.lines("config.reloaded"):
            client.daemon.get("/livez", port=client.admin_port)
        assert client.daemon.lines("config.reloaded")[0]["key"] == ["quotas.write.requests_per_second"]
        assert client.daemon.lines("config.reloaded")[0]["restart_needed"] == []
        assert [put(client, "w-1") for _ in range(3)] == [204] * 3
