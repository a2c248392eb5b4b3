"""``shale config`` shows the effective settings of the daemons without starting them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from shale_cli.__main__ import main

Patch, Captured = pytest.MonkeyPatch, pytest.CaptureFixture[str]


def config(patch: Patch, *arguments: str) -> int:
    patch.setattr(sys, "argv", ["shale", "config", *arguments])
    return int(main() or 0)


def answer(patch: Patch, captured: Captured, *arguments: str) -> Any:
    assert config(patch, *arguments) == 0
    said = captured.readouterr()
    assert said.err == ""
    return json.loads(said.out)


@pytest.mark.parametrize("role", ["writer", "compactor", "gc", "reader"])
def test_settings_can_be_checked_shown_and_described(role: str, monkeypatch: Patch, capsys: Captured) -> None:
    monkeypatch.setenv("SHALE_STORE__ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("SHALE_STORE__SECRET_ACCESS_KEY", "hush")
    assert answer(monkeypatch, capsys, "check", role, "-u", "s3://bucket/db")["role"] == role
    shown = answer(monkeypatch, capsys, "show", role, "-u", "s3://bucket/db")
    assert shown["settings"]["database"]["url"] == "s3://bucket/db"
    assert "hush" not in str(shown)
    assert answer(monkeypatch, capsys, "schema", role)["schema"]["properties"]["database"]


def test_every_mistake_is_told_with_its_place(tmp_path: Path, monkeypatch: Patch, capsys: Captured) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[admin]\nport = "many"\n[log]\nlevle = "info"\n')
    assert config(monkeypatch, "check", "writer", "-u", "nonsense", "--config", str(file)) == 4
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 3
    assert sum(str(file) in line for line in lines) == 2


def test_an_unknown_role_is_a_usage_error(monkeypatch: Patch) -> None:
    assert config(monkeypatch, "check", "spark") == 2


def test_the_origin_of_each_value_is_told(tmp_path: Path, monkeypatch: Patch, capsys: Captured) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/admin__bearer_token").write_text("hush")
    file = tmp_path / "config.toml"
    file.write_text('[log]\nlevel = "info"\n[writer.log]\nformat = "json"\n[admin]\nport = 1\n')
    monkeypatch.setenv("SHALE_SECRETS_DIR", str(tmp_path / "secrets"))
    monkeypatch.setenv("SHALE_ADMIN__PORT", "2")
    shown = answer(monkeypatch, capsys, "show", "writer", "--origin", "-u", "s3://bucket/db", "--config", str(file))[
        "settings"
    ]
    assert "hush" not in str(shown)
    found = {each["setting"]: (each["value"], each["origin"]) for each in shown}
    assert found["database.url"] == ("s3://bucket/db", "option --url")
    assert found["admin.port"] == (2, "environment SHALE_ADMIN__PORT")
    assert found["admin.bearer_token"][1] == f"secret file {tmp_path}/secrets/admin__bearer_token"
    assert found["log.level"] == ("info", f"file {file}")
    assert found["log.format"] == ("json", f"file {file}, section writer")
    assert found["cpu_threads"][1] == "default"
