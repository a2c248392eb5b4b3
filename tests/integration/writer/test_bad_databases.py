"""A writer with damaged or newer files: one line that names the object, exit code 65, no write."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.daemons.daemon_process import ENDED_S, running
from tests.integration.writer.writer_process import writer

pytestmark = pytest.mark.native_only("the files of a database are copied, without its records")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the files of a killed writer."""
    directory = tmp_path_factory.mktemp("good")
    with writer(directory, log="first") as client:
        for row in range(20):
            client.put(b"row/%d" % row, b"value" * 50, X_Shale_Durability="memory" if row < 19 else "durable")
        client.daemon.process.kill()
        client.daemon.process.wait()
    return directory / "store"


def _newest(database: Path, folder: str) -> Path:
    return max(path for path in (database / folder).iterdir() if path.is_file())


def _fullest_wal(database: Path) -> Path:
    return max((path for path in (database / "wal").iterdir()), key=lambda path: path.stat().st_size)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def _future(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0:2] = struct.pack(">H", 99)
    path.write_bytes(data)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("choose", "damage"),
    [
        pytest.param(lambda database: _newest(database, "manifest"), _truncate, id="truncated manifest"),
        pytest.param(lambda database: _newest(database, "manifest"), _empty, id="empty manifest"),
        pytest.param(lambda database: _newest(database, "manifest"), _future, id="manifest of a newer format"),
        pytest.param(_fullest_wal, _truncate, id="truncated WAL file"),
        pytest.param(_fullest_wal, _flip, id="flipped bit in a WAL file"),
    ],
)
def test_a_damaged_database_is_refused(
    good: Path, tmp_path: Path, choose: Callable[[Path], Path], damage: Callable[[Path], None]
) -> None:
    database = shutil.copytree(good, tmp_path / "store") / "orders"
    victim = choose(database)
    damage(victim)
    before = {path: path.read_bytes() for path in database.rglob("*") if path.is_file()}
    with running("shale_writer", "--url", f"file://{database}", "--port", "0", log=tmp_path / "second") as daemon:
        assert daemon.process.wait(ENDED_S) == 65, daemon.log.read_text()
        last = daemon.lines()[-1]
    assert (last["event"], last["level"], last["exit_code"]) == ("daemon.failed", "error", 65)
    assert victim.name in json.dumps(last)
    assert "exception" not in last
    untouched = {path: path.read_bytes() for path in before}
    assert untouched == before
