"""The JSON output of the commands for commit records, on records in a file."""

from pathlib import Path

import pytest

from tests.integration.cli.goldens import Golden


@pytest.fixture
def records_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    url = f"sqlite://{tmp_path}/cas.db"
    monkeypatch.setenv("SHALE_STORE__CAS", "two-phase")
    monkeypatch.setenv("SHALE_STORE__TRANSACTIONAL_URL", url)
    return url


def test_records_of_a_database(golden: Golden, records_url: str, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    golden.check("cas-init", "cas", "init", "-u", url)
    golden.run("kv", "put", "key", "value", "-u", url)
    golden.check("cas-status", "cas", "status", "-u", url)
    golden.check("cas-recover", "cas", "recover", "-u", url)
    golden.check("cas-migrate.dry-run", "cas", "migrate", "--to", "native", "--dry-run", "-u", url)
    golden.check("cas-migrate", "cas", "migrate", "--to", "native", "--yes", "-u", url)
