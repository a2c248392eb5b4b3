"""``shale config``: what the daemons would run with, without running them."""

from pathlib import Path

import pytest

from tests.integration.cli.test_commands import answer, shale


@pytest.mark.parametrize("role", ["writer", "compactor", "gc", "reader"])
def test_settings_can_be_checked_shown_and_described(role: str, tmp_path: Path) -> None:
    assert answer("config", "check", role, "-u", "s3://bucket/db")["role"] == role
    shown = answer(
        "config", "show", role, "-u", "s3://bucket/db",
        SHALE_STORE__ACCESS_KEY_ID="someone", SHALE_STORE__SECRET_ACCESS_KEY="hush",
    )  # fmt: skip
    assert shown["settings"]["database"]["url"] == "s3://bucket/db"
    assert "hush" not in str(shown)
    assert answer("config", "schema", role)["schema"]["properties"]["database"]


def test_every_mistake_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[admin]\nport = "many"\n[log]\nlevle = "info"\n')
    result = shale("config", "check", "writer", "-u", "nonsense", "--config", str(file))
    assert (result.returncode, result.stdout) == (4, b"")
    lines = result.stderr.decode().splitlines()
    assert len(lines) == 3
    assert sum(str(file) in line for line in lines) == 2


def test_an_unknown_role_is_a_usage_error() -> None:
    assert shale("config", "check", "spark").returncode == 2
