"""``shale backup``: its output, and no effect before confirmation."""

import json
from pathlib import Path

import pytest

from tests.integration.cli.goldens import Golden

VOLATILE = ("bytes", "copied_bytes", "read_bytes")


@pytest.fixture
def backups(tmp_path: Path) -> tuple[str, str]:
    return "--backups", f"file://{tmp_path}/backups"


def test_from_create_to_prune(golden: Golden, url: str, tmp_path: Path, backups: tuple[str, str]) -> None:
    golden.check("backup-create", "backup", "create", *backups, "-u", url, volatile=VOLATILE)
    golden.run("kv", "put", "c", "3", "-u", url)
    golden.run("backup", "create", *backups, "-u", url)
    golden.check("backup-list", "backup", "list", *backups, "-u", url, volatile=VOLATILE)
    golden.check("backup-verify", "backup", "verify", "--deep", *backups, "-u", url, volatile=VOLATILE)
    golden.check("backup-prune.dry-run", "backup", "prune", "--keep", "1", *backups, "-u", url, volatile=VOLATILE)
    assert len(list((tmp_path / "backups/backups").iterdir())) == 2
    golden.check("backup-prune", "backup", "prune", "--keep", "1", "--yes", *backups, "-u", url, volatile=VOLATILE)
    assert len(list((tmp_path / "backups/backups").iterdir())) == 1
    copy = f"file://{tmp_path}/copy"
    golden.check("backup-restore", "backup", "restore", *backups, "-u", copy, volatile=VOLATILE)
    golden.run("verify", "--deep", "-u", copy)
    assert golden.run("kv", "get", "c", "-u", copy) == golden.run("kv", "get", "c", "-u", url)


def test_a_database_is_replaced_only_with_both_options(golden: Golden, url: str, backups: tuple[str, str]) -> None:
    golden.run("backup", "create", *backups, "-u", url)
    golden.run("kv", "put", "c", "wrong", "-u", url)
    restore = ("backup", "restore", *backups, "-u", url)
    assert "in_place" in golden.refused(*restore, code=2)
    assert "dry run" in golden.refused(*restore, "--in-place", code=4)
    golden.run("kv", "get", "c", "-u", url)
    done = json.loads(golden.run(*restore, "--in-place", "--yes"))
    assert done["undo_checkpoint"]
    golden.run("kv", "get", "c", "-u", url, code=3)
    golden.run("verify", "-u", url)


def test_findings_end_with_4(golden: Golden, url: str, tmp_path: Path, backups: tuple[str, str]) -> None:
    golden.run("backup", "create", *backups, "-u", url)
    sst = next(tmp_path.glob("backups/objects/db/compacted/*.sst"))
    data = bytearray(sst.read_bytes())
    data[5] ^= 1
    sst.write_bytes(data)
    golden.run("backup", "verify", "--quick", *backups, "-u", url)
    for form in ("table", "csv", "json"):
        assert sst.name in golden.run("backup", "verify", *backups, "-u", url, "-o", form, code=4)


def test_the_place_comes_from_the_settings(
    golden: Golden, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--backups URL" in golden.refused("backup", "list", "-u", url, code=2)
    monkeypatch.setenv("SHALE_BACKUP__URL", f"file://{tmp_path}/elsewhere")
    golden.run("backup", "create", "-u", url, "-o", "table")
    assert (tmp_path / "elsewhere/backups").is_dir()
    monkeypatch.setenv("SHALE_BACKUP__STORE__REGION", "eu-west-1")
    assert len(json.loads(golden.run("backup", "list", "-u", url))["backups"]) == 1
    assert "a prune needs a rule" in golden.refused("backup", "prune", "-u", url, code=2)
