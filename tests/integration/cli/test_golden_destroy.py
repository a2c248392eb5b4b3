"""``shale db destroy`` and its flat names: their output, and no effect before confirmation."""

import json
from pathlib import Path

import pytest

from shale_cli.__main__ import main
from tests.integration.cli.goldens import Golden


def files_of(tmp_path: Path) -> list[str]:
    return sorted(str(file.relative_to(tmp_path)) for file in (tmp_path / "db").rglob("*") if file.is_file())


VOLATILE = ("bytes", "newest_ms")


@pytest.mark.parametrize("flags", [(), ("--dry-run",), ("--soft",), ("--force",)])
def test_nothing_happens_without_yes(golden: Golden, url: str, tmp_path: Path, flags: tuple[str, ...]) -> None:
    before = files_of(tmp_path)
    golden.run("db", "destroy", *flags, "-u", url)
    golden.run("destroy", *(flag for flag in flags if flag != "--dry-run"), "-u", url)
    assert files_of(tmp_path) == before


def test_hard(golden: Golden, url: str, tmp_path: Path) -> None:
    golden.check("db-destroy.dry-run", "db", "destroy", "-u", url, volatile=VOLATILE)
    golden.check("db-destroy", "db", "destroy", "--yes", "-u", url, volatile=VOLATILE)
    assert files_of(tmp_path) == []
    golden.check("db-destroy.nothing", "db", "destroy", "--yes", "-u", url)


def test_a_soft_destroy_writes_the_marker_and_refuses_reads(golden: Golden, url: str, tmp_path: Path) -> None:
    golden.check("db-destroy.soft", "db", "destroy", "--soft", "--yes", "-u", url, volatile=VOLATILE)
    assert "db/.destroyed" in files_of(tmp_path)
    golden.run("kv", "get", "a", "-u", url, code=2)


def test_a_soft_one_is_not_refused_for_what_it_waits_for(
    golden: Golden, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run reports it, and does not report a refusal."""
    golden.run("checkpoint", "create", "--name", "nightly", "-u", url)
    capsys.readouterr()
    assert main(["db", "destroy", "--soft", "-u", url]) == 0
    told = capsys.readouterr().err
    assert "would wait: db has 1 live checkpoints" in told
    assert "refused" not in told
    assert "to mark a database" in told
    golden.run("db", "destroy", "--soft", "--yes", "-u", url)
    assert "db/.destroyed" in files_of(tmp_path)


def test_a_pinned_database_is_destroyed_only_by_force(golden: Golden, url: str, tmp_path: Path) -> None:
    golden.run("checkpoint", "create", "--name", "nightly", "-u", url)
    (tmp_path / "db" / "notes.txt").write_text("mine")
    before = files_of(tmp_path)
    golden.check("db-destroy.refused", "db", "destroy", "-u", url, volatile=VOLATILE)
    golden.run("db", "destroy", "--yes", "-u", url, code=2)
    assert files_of(tmp_path) == before
    golden.run("db", "destroy", "--yes", "--force", "-u", url)
    assert files_of(tmp_path) == []


def test_flat_names(golden: Golden, url: str, tmp_path: Path) -> None:
    listed = golden.check("delete-db.dry-run", "delete-db", "-u", url, volatile=VOLATILE)
    assert [item["key"] for item in listed["items"]] != []
    assert json.loads(golden.run("destroy", "--soft", "--confirm", "-u", url))["is_done"]
    assert json.loads(golden.run("destroy", "--hard", "-u", url))["destroyed_at"] is not None
    golden.check("delete-db", "delete-db", "--confirm", "-u", url, volatile=VOLATILE)
    assert files_of(tmp_path) == []


def test_what_cannot_be_meant(golden: Golden, url: str, tmp_path: Path) -> None:
    golden.run("db", "destroy", "--soft", "--hard", "-u", url, code=2)
    golden.run("db", "destroy", "--soft", "--force", "--yes", "-u", url, code=2)
    golden.run("db", "destroy", "--yes", "--dry-run", "-u", url, code=2)
    golden.run("db", "destroy", "--soft", "--yes", "-u", f"file://{tmp_path}/none", code=3)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes.txt").write_text("mine")
    golden.run("db", "destroy", "--yes", "--force", "-u", f"file://{tmp_path}/files", code=2)
    assert (tmp_path / "files" / "notes.txt").exists()


def test_a_table_for_people(golden: Golden, url: str) -> None:
    text = golden.run("db", "destroy", "-u", url, "-o", "table")
    assert text.splitlines()[0].split() == ["NAMESPACE", "OBJECTS", "BYTES"]
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["compacted", "wal", "manifest"]


def test_a_log_in_a_store_of_its_own_goes_too(golden: Golden, tmp_path: Path) -> None:
    """The WAL store may be named anywhere on the command line."""
    main, wal = tmp_path / "main", tmp_path / "log"
    wal.mkdir()
    place = ("-u", f"file://{main}/db", "--wal-store", f"file://{wal}")
    golden.run("kv", "put", "a", "1", *place)
    assert list((wal / "db/wal").iterdir())
    golden.run("db", "destroy", "--yes", *place)
    assert [path for path in wal.rglob("*.sst") if path.is_file()] == []
    assert [path for path in main.rglob("*.sst") if path.is_file()] == []
