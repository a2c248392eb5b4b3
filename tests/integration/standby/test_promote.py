"""``shale writer promote``: a standby becomes the writer, and the command returns when it is."""

import signal
from pathlib import Path

import pytest

from tests.integration.cli.commands import refusal
from tests.integration.cli.goldens import Golden
from tests.integration.daemons.daemon_process import ENDED_S
from tests.integration.standby.standby_process import pair


@pytest.fixture
def golden(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Golden:
    return Golden(capsys, monkeypatch, tmp_path)


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
