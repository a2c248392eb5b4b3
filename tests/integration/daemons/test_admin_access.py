"""The admin port of running daemons without an admin token: who may administrate, and what stays open."""

import json
from pathlib import Path

import pytest

from tests.integration.daemons.daemon_process import ENDED_S, Daemon, running
from tests.integration.writer.writer_process import writer

REQUIRED = ("--set", "admin.require_token=true")
PROBES = ("/metrics", "/livez", "/readyz", "/statusz")
PAGES = ("/openapi.json", "/", "/console.js")
WRITER_CALLS = (
    *(("GET", f"/v1/admin/{path}") for path in ("log-level", "checkpoints")),
    *(("POST", f"/v1/admin/{path}") for path in ("flush", "checkpoints", "no-such-call")),
    ("PUT", "/v1/admin/log-level"),
    *(("GET", f"/console/{path}") for path in ("events", "candidates")),
)


def assert_closed(daemon: Daemon, port: int, calls: tuple[tuple[str, str], ...], token: str | None = None) -> None:
    """Check that no call is allowed, and that probes, metrics and the page are."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    for method, path in calls:
        status, body, _ = daemon.request(method, path, port=port, headers=headers)
        assert status == 403, (method, path, status, body)
        detail = json.loads(body)["detail"]
        assert "admin.require_token" in detail
        assert "set tokens.admin or admin.bearer_token" in detail
    for path in (*PROBES, *PAGES):
        assert daemon.get(path, port=port)[0] == 200, path


@pytest.mark.parametrize("variable", ["SHALE_HTTP__BEARER_TOKEN", "SHALE_RESP__BEARER_TOKEN"])
def test_a_token_of_a_data_port_does_not_leave_the_admin_port_open(tmp_path: Path, variable: str) -> None:
    with writer(tmp_path, env={variable: "data-token"}) as client:
        assert_closed(client.daemon, client.admin_port, WRITER_CALLS)
        assert_closed(client.daemon, client.admin_port, WRITER_CALLS, token="data-token")


def test_a_required_token_that_is_not_set_closes_the_admin_port(tmp_path: Path) -> None:
    with writer(tmp_path, *REQUIRED) as client:
        assert client.put(b"a", b"1")[0] == 204
        assert_closed(client.daemon, client.admin_port, WRITER_CALLS)
        url = f"file://{tmp_path}/store/orders"
        for module, path in (("shale_compactor", "compactions"), ("shale_gc", "gc")):
            with running(module, "--url", url, *REQUIRED, log=tmp_path / module) as daemon:
                calls = (("GET", f"/v1/admin/{path}"), ("POST", f"/v1/admin/{path}"))
                assert_closed(daemon, daemon.port("admin_port"), calls)


def test_a_bare_process_without_any_token_is_open(tmp_path: Path) -> None:
    with writer(tmp_path) as client:
        assert client.daemon.request("POST", "/v1/admin/flush", port=client.admin_port)[0] == 204


@pytest.mark.parametrize("insecure", [False, True])
def test_a_local_port_without_tokens_refuses_a_name_that_a_page_gives_its_address(
    tmp_path: Path, insecure: bool
) -> None:
    """DNS rebinding: the browser of this machine calls the port for a page, and lets the page read the response."""
    calls = (("GET", "/v1/writer", "port"), ("PUT", "/v1/kv/YQ", "port"), ("POST", "/v1/admin/flush", "admin_port"))
    with writer(tmp_path, "--set", f"auth.insecure={insecure}".lower()) as client:
        for host in ("localhost:1", "127.0.0.1", "page.example:1"):
            for method, path, name in calls:
                port, headers = client.daemon.port(name), {"Host": host}
                status, body, _ = client.daemon.request(method, path, port=port, headers=headers)
                if host == "page.example:1" and not insecure:
                    assert (status, b"the header Host names 'page.example'" in body) == (403, True), (path, body)
                else:
                    assert status in {200, 204}, (host, path, body)


def test_an_admin_token_is_all_that_is_needed(tmp_path: Path) -> None:
    env = {"SHALE_ADMIN__REQUIRE_TOKEN": "true", "SHALE_TOKENS__ADMIN": "admin-token"}
    with writer(tmp_path, env=env) as client:
        for token, status in (("admin-token", 204), ("other", 401)):
            headers = {"Authorization": f"Bearer {token}"}
            assert (
                client.daemon.request("POST", "/v1/admin/flush", port=client.admin_port, headers=headers)[0] == status
            )


def test_a_daemon_does_not_open_an_unprotected_port_to_other_machines(tmp_path: Path) -> None:
    """Exit 78 before anything is opened, and a line that names the ways out; accepted, it warns."""
    arguments = ("--url", f"file://{tmp_path}/store/orders", "--port", "0", "--set", "http.host=0.0.0.0")
    with running("shale_writer", *arguments, log=tmp_path / "refused") as daemon:
        assert daemon.process.wait(ENDED_S) == 78
        line = (tmp_path / "refused").read_text()
        assert line.count("\n") == 1
        assert "http.host" in line
        assert not (tmp_path / "store").exists()
    # Short for 127.0.0.1; but for ``localhost`` a name counts as the address of other machines.
    accepted = {"SHALE_AUTH__INSECURE": "true", "SHALE_ADMIN__HOST": "127.1"}
    with running("shale_writer", *arguments[:-2], log=tmp_path / "accepted", env=accepted) as daemon:
        daemon.wait_for("daemon.ready")
        (warning,) = daemon.lines("auth.insecure")
        assert (warning["level"], warning["key"]) == ("warning", "admin.host")
        assert daemon.stop() == 0
