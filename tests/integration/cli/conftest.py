"""The helper of all golden tests, and a small database."""

from pathlib import Path

import pytest

from tests.integration.cli.goldens import Golden


@pytest.fixture
def golden(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Golden:
    for name in ("SHALE_URL", "SHALE_STORE", "SHALE_PATH", "SHALE_CONFIG", "CLOUD_PROVIDER"):
        monkeypatch.delenv(name, raising=False)
    return Golden(capsys, monkeypatch, tmp_path)


@pytest.fixture
def url(golden: Golden, tmp_path: Path) -> str:
    """Create a database with two L0s: rows ``a`` and ``b``, and a value that expires."""
    where = f"file://{tmp_path}/db"
    golden.run("kv", "put", "a", "1", "-u", where)
    golden.run("kv", "put", "b", "2", "--ttl", "1h", "-u", where)
    return where
