"""``shale verify`` in a process."""

import json
from pathlib import Path

import anyio

import shale
from tests.integration.cli.goldens import Golden


def test_a_sound_and_a_damaged_database(golden: Golden, url: str, tmp_path: Path) -> None:
    volatile = ("bytes", "read_bytes", "objects")
    golden.check("verify", "verify", "-u", url, volatile=volatile)
    golden.check("verify.deep", "verify", "--deep", "-u", url, volatile=volatile)
    table = golden.run("verify", "-o", "table", "--orphans", "-u", url)
    assert "state" in table
    sst = min((tmp_path / "db/compacted").glob("*.sst"))
    sst.unlink()
    golden.check("verify.damaged", "verify", "-u", url, code=4, volatile=volatile)
    table = golden.run("verify", "-o", "table", "-u", url, code=4)
    assert f"error     object-missing  db/compacted/{sst.name}" in table
    lines = golden.run("verify", "-o", "csv", "-u", url, code=4).splitlines()
    assert lines[1].startswith(f"error,object-missing,db/compacted/{sst.name}")


def test_a_missing_database_or_a_wrong_option_is_refused(golden: Golden, tmp_path: Path) -> None:
    golden.run("verify", "-u", f"file://{tmp_path}/none", code=3)
    golden.run("verify", "--checkpoint", "", "-u", f"file://{tmp_path}/none", code=2)
    golden.run("verify", "--min-age", "x", "-u", f"file://{tmp_path}/none", code=2)


def test_a_log_in_a_store_of_its_own(golden: Golden, tmp_path: Path) -> None:
    async def write() -> None:
        async with shale.Db.open(where, wal_store=logs) as db:
            for number in range(3):
                await db.put(b"%d" % number, b"")
                await db.flush("wal")
            await db.close("wal")

    where, logs = f"file://{tmp_path}/db", f"file://{tmp_path}/logs"
    anyio.run(write)
    golden.run("verify", "--wal-store", logs, "-u", where)
    report = json.loads(golden.run("verify", "-o", "json", "-u", where, code=4))
    assert [finding["code"] for finding in report["findings"]] == ["wal-missing"]


def test_it_writes_nothing(golden: Golden, url: str, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    report = json.loads(golden.run("verify", "--deep", "-o", "json", "-u", url))
    assert report["is_sound"]
    assert report["checked"]["rows"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
