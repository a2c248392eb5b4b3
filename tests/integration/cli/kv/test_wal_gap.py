"""A lost WAL file ends every reading command, unless ``--allow-wal-gap`` is given."""

import json
from pathlib import Path

import anyio
import pytest

import shale as library
from shale.errors import WalTruncated
from shale.format.names import wal_key
from tests.integration.cli.commands import refusal, shale
from tests.integration.daemons.daemon_process import ENDED_S, running

READS = {
    "get": ("kv", "get", "r05", "--raw"),
    "scan": ("kv", "scan", "-o", "jsonl"),
    "count": ("kv", "scan", "--count"),
    "pinned scan": ("kv", "scan", "--pin", "-o", "jsonl"),
    "export": ("kv", "export", "-", "--format", "ndjson"),
    "rows": ("wal", "rows", "-o", "jsonl"),
    "rows of a key": ("wal", "rows", "r00", "-o", "jsonl"),
    "tail": ("wal", "tail", "--from", "earliest", "--once", "-o", "jsonl"),
}
LOST = (10, 11, 20)


async def write(url: str) -> None:
    """Write 30 rows, each in a WAL file of its own; the first is file 2."""
    db = await library.Db.open(url, flush_interval=0)
    for number in range(30):
        await (await db.put(b"r%02d" % number, b"v")).durable()
    await db.close(flush="wal")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("damaged")
    anyio.run(write, f"file://{folder}/db")
    for lost in LOST:
        (folder / wal_key("db", lost)).unlink()
    return f"file://{folder}/db"


@pytest.mark.parametrize("command", READS)
def test_a_lost_wal_file_is_an_error_and_can_be_left_out(damaged: str, command: str) -> None:
    failed = shale(*READS[command], "-u", damaged)
    assert failed.returncode == 65, failed.stderr.decode()
    first = 20 if command == "rows of a key" else 10
    assert f"db/wal/{first:020}.sst" in failed.stderr.decode()
    assert b"--allow-wal-gap" in failed.stderr
    read = shale(*READS[command], "--allow-wal-gap", "-u", damaged)
    assert read.returncode == 0, read.stderr.decode()
    warnings = read.stderr.decode()
    assert "shale: warning: the rows of lost WAL files are left out: " in warnings
    assert all(str(lost) in warnings for lost in LOST)
    if command == "count":
        assert b"27" in read.stdout
    elif command not in ("get", "rows of a key"):
        assert len(read.stdout.splitlines()) == 27


def test_a_wal_in_another_store_is_told_apart(tmp_path: Path) -> None:
    anyio.run(write, f"file://{tmp_path}/db")
    (tmp_path / "db/wal").rename(tmp_path / "elsewhere")
    code, line = refusal("kv", "scan", "-u", f"file://{tmp_path}/db")
    assert code == 2
    assert "name it with wal_store" in line


def test_a_reader_daemon_ends_with_65_and_serves_with_the_setting(damaged: str, tmp_path: Path) -> None:
    place = ("--url", damaged, "--port", "0")
    with running("shale_reader", *place, log=tmp_path / "strict") as daemon:
        assert daemon.process.wait(ENDED_S) == 65
    with running("shale_reader", *place, "--set", "allow_wal_gap=true", log=tmp_path / "tolerant") as daemon:
        daemon.wait_for("daemon.ready")
        assert [event["last_wal_id"] for event in daemon.lines("wal.gap_skipped")] == [11, 20]
        port = int(daemon.wait_for("daemon.ready")["admin_port"])
        assert json.loads(daemon.get("/statusz", port=port)[1])["wal_gaps"] == ["10 to 11", "20"]


def test_the_blocking_twins_tell_it_too(damaged: str) -> None:
    with pytest.raises(WalTruncated, match="10 to 11, 20"):
        library.sync.DbReader.open(damaged)
    with library.sync.DbReader.open(damaged, allow_wal_gap=True) as reader:
        assert [str(gap) for gap in reader.wal_gaps] == ["10 to 11", "20"]
        assert len(list(reader.scan())) == 27
