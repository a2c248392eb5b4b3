"""The audit log of a running writer: what it says, where it is written, and that it holds no token."""

import json
import stat
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.integration.daemons.daemon_process import ENDED_S, metric, running
from tests.integration.writer.writer_process import Client, writer

IDLE = "tests.integration.daemons.idle_daemon"
ADMIN, READ, UNKNOWN = "admin-token-5f1d", "read-token-81aa", "unknown-token-3c3c"
WRITER = "write-token-22c0"


def call(client: Client, method: str, path: str, token: str, **headers: str) -> tuple[int, dict[str, str]]:
    sent = {"Authorization": f"Bearer {token}", **{name.replace("_", "-"): text for name, text in headers.items()}}
    status, _, answered = client.daemon.request(method, f"/v1/admin/{path}", port=client.admin_port, headers=sent)
    return status, answered


def audited_writer(directory: Path) -> AbstractContextManager[Client]:
    env = {"SHALE_TOKENS__ADMIN": ADMIN, "SHALE_TOKENS__READ": READ, "SHALE_AUDIT__FILE": str(directory / "audit")}
    return writer(directory, env=env)


def events(client: Client) -> list[dict[str, Any]]:
    return [line for line in client.daemon.lines() if line["event"].startswith("admin.call.")]


def test_every_call_that_changes_something_is_recorded(tmp_path: Path) -> None:
    with audited_writer(tmp_path) as client:
        assert call(client, "GET", "checkpoints", READ)[0] == 200
        status, answered = call(client, "POST", "checkpoints", ADMIN, X_Request_Id="from-the-client")
        assert (status, answered["x-request-id"]) == (201, "from-the-client")
        made = answered["location"]
        assert call(client, "DELETE", made.removeprefix("/v1/admin/"), ADMIN)[0] == 204
        assert call(client, "POST", "checkpoints?no=query", ADMIN)[0] == 400
        assert call(client, "POST", "flush", READ)[0] == 403
        assert call(client, "POST", "flush", UNKNOWN)[0] == 401
        assert call(client, "POST", "flush", UNKNOWN)[0] == 401
        found = events(client)
        assert [
            (each["event"].rpartition(".")[2], each["method"], each["path"], each["status"], each["role"])
            for each in found
        ] == [
            ("completed", "POST", "/v1/admin/checkpoints", 201, "admin"),
            ("completed", "DELETE", made, 204, "admin"),
            ("failed", "POST", "/v1/admin/checkpoints?no=query", 400, "admin"),
            ("refused", "POST", "/v1/admin/flush", 403, "read"),
            ("refused", "POST", "/v1/admin/flush", 401, "none"),
        ]
        assert (found[0]["object"], found[0]["request_id"]) == (made, "from-the-client")
        assert len({each["request_id"] for each in found}) == len(found)
        assert len({each["fingerprint"] for each in found[:3]}) == 1
        assert found[3]["fingerprint"] not in (None, found[0]["fingerprint"])
        assert found[4]["fingerprint"] is None
        assert all(each["client"].startswith("127.0.0.1:") for each in found)
        assert metric(client.metrics(), "shale_admin_calls_total") == 2
        assert 'shale_admin_calls_total{db="orders",outcome="refused"} 3.0' in client.metrics()
        file = tmp_path / "audit"
        written = [json.loads(line) for line in file.read_text().splitlines()]
        assert [each | {"ts": ""} for each in written] == [each | {"ts": ""} for each in found]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for token in (ADMIN, READ, UNKNOWN):
            assert token not in client.daemon.log.read_text() + file.read_text()


def test_the_file_may_be_renamed_or_truncated_and_the_level_does_not_matter(tmp_path: Path) -> None:
    file, old = tmp_path / "audit", tmp_path / "audit.1"
    with audited_writer(tmp_path) as client:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        path = "/v1/admin/log-level"
        assert client.daemon.request("PUT", path, port=client.admin_port, body=b'"error"', headers=headers)[0] == 200
        file.rename(old)
        assert call(client, "POST", "flush", ADMIN)[0] == 204
        assert [len(each.read_text().splitlines()) for each in (old, file)] == [1, 1]
        file.write_text("")
        assert call(client, "POST", "flush", ADMIN)[0] == 204
        assert json.loads(file.read_text())["event"] == "admin.call.completed"
        assert len(events(client)) == 3


def test_a_line_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    env = {"SHALE_AUDIT__FILE": "/dev/full"}
    with running(IDLE, "--url", "memory:///db", log=tmp_path / "log", env=env) as daemon:
        port = daemon.port("admin_port")
        assert daemon.request("PUT", "/v1/admin/log-level", port=port, body=b'"info"')[0] == 200
        assert daemon.wait_for("audit.write.failed")["file"] == "/dev/full"


def test_a_file_that_cannot_be_opened_ends_the_daemon(tmp_path: Path) -> None:
    env = {"SHALE_AUDIT__FILE": str(tmp_path / "no" / "audit")}
    with running("shale_gc", "--url", "memory:///db", log=tmp_path / "log", env=env) as daemon:
        assert daemon.process.wait(ENDED_S) == 78
        assert "audit.file: cannot append to" in daemon.lines()[-1]["error"]


def lookup(client: Client, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = json.dumps({"key": "row"}).encode()
    status: int = client.daemon.request("POST", "/console/lookup", port=client.admin_port, body=body, headers=headers)[
        0
    ]
    return status


def test_lookups_count_in_the_quota_of_the_data_ports_and_are_audited(tmp_path: Path) -> None:
    env = {
        "SHALE_TOKENS__READ": READ,
        "SHALE_TOKENS__WRITE": WRITER,
        "SHALE_QUOTAS__READ__REQUESTS_PER_SECOND": "0.001",
    }
    with writer(tmp_path, env=env) as client:
        assert lookup(client, UNKNOWN) == 401
        assert lookup(client, READ) == 404
        assert lookup(client, READ) == 429
        headers = {"Authorization": f"Bearer {READ}"}
        assert client.daemon.request("GET", "/v1/kv/row", port=client.port, headers=headers)[0] == 429
        assert lookup(client, WRITER) == 404, "its role has no quota"
        found = events(client)
        assert [(each["event"], each["path"], each["status"], each["role"]) for each in found] == [
            ("admin.call.refused", "/console/lookup", 401, "none"),
            ("admin.call.failed", "/console/lookup", 404, "read"),
            ("admin.call.refused", "/console/lookup", 429, "read"),
            ("admin.call.failed", "/console/lookup", 404, "write"),
        ]
        assert "row" not in json.dumps(found)
        assert 'shale_quota_refusals_total{db="orders",role="read"} 2.0' in client.metrics()
