"""Every call that an admin port describes is in the audit log, with its caller, also if it was refused."""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemons.daemon_process import Daemon, metric, running

DAEMONS = ("shale_writer", "shale_compactor", "shale_compactor.worker", "shale_gc", "shale_reader")
MANY = range(30)
"""Tokens of each role: one for each call, as each may call once."""
READING = {"GET", "HEAD"}
METHODS = READING | {"PUT", "POST", "PATCH", "DELETE"}
FIELD = re.compile(r"{\w+}")
FIELDS = ("event", "role", "fingerprint", "method", "path", "status", "reason")


def fingerprint(token: str) -> str:
    return sha256(token.encode()).hexdigest()[:8]


def described(daemon: Daemon, port: int) -> list[tuple[str, str]]:
    """Return method and path of each call that the port describes."""
    paths = json.loads(daemon.get("/openapi.json", port=port)[1])["paths"]
    calls = [(method.upper(), FIELD.sub("x", path)) for path, calls in paths.items() for method in calls]
    return [each for each in calls if each[0] in METHODS]


def call(daemon: Daemon, port: int, method: str, path: str, token: str | None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return daemon.request(method, path, port=port, headers=headers)[0]


def shown(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in FIELDS)


@pytest.mark.parametrize("module", DAEMONS)
def test_each_call_of_each_port_is_recorded(tmp_path: Path, module: str) -> None:
    env = {
        "SHALE_TOKENS__READ": ",".join(f"read-{number}" for number in MANY),
        "SHALE_TOKENS__ADMIN": ",".join(f"admin-{number}" for number in MANY),
        "SHALE_ADMIN__REQUESTS_PER_SECOND": "0.0001",
        "SHALE_AUDIT__FILE": str(tmp_path / "audit"),
    }
    url = f"file://{tmp_path}/store/orders"
    options = ("--url", url, *(("--port", "0") if module in ("shale_writer", "shale_reader") else ()))
    if module != "shale_writer":
        with running("shale_writer", "--url", url, "--port", "0", log=tmp_path / "writer") as writer:
            writer.wait_for("daemon.ready")
            writer.stop()
    expected: list[tuple[Any, ...]] = []
    strangers = 0
    with running(module, *options, log=tmp_path / "log", env=env) as daemon:
        port = daemon.port("admin_port")
        calls = described(daemon, port)
        assert ("PUT", "/v1/admin/log-level") in calls
        for number, (method, path) in enumerate(calls):
            reader, admin = f"read-{number}", f"admin-{number}"
            changes = method not in READING
            for token in (None, "unknown"):
                assert call(daemon, port, method, path, token) == 401
                strangers += changes
            if changes:
                assert call(daemon, port, method, path, reader) == 403
            status = call(daemon, port, method, path, admin)
            assert status not in (401, 403, 429)
            assert call(daemon, port, method, path, admin) == 429
            if not changes:
                continue
            what = (method, path)
            event = "completed" if status < 400 else "failed"
            expected += [
                ("admin.call.refused", "read", fingerprint(reader), *what, 403, "forbidden"),
                (f"admin.call.{event}", "admin", fingerprint(admin), *what, status, None),
                ("admin.call.refused", "admin", fingerprint(admin), *what, 429, "quota"),
            ]
        lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
        assert [shown(each) for each in lines if each["role"] != "none"] == expected
        unknown = [each for each in lines if each["role"] == "none"]
        assert shown(unknown[0])[:3] == ("admin.call.refused", "none", None)
        assert {each["status"] for each in unknown} == {401}
        refused = 'shale_admin_calls_total{db="orders",outcome="refused"}'
        metrics = daemon.get("/metrics", port=port)[1]
        assert metric(metrics, refused) == strangers + sum(each[5] in (403, 429) for each in expected)
        assert all("client" in each and "request_id" in each for each in lines)
