"""Commands that write, each in a process of its own, beside other processes and after a SIGKILL.

None fences a live writer by accident.  An import that was killed goes on: no row is lost, and what was durable is not
written again.
"""

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from tests.integration.cli.commands import ENVIRONMENT, shale
from tests.integration.daemons.daemon_process import Daemon, running
from tests.paths import REPOSITORY
from tests.processes.forks import Fork

ROWS = 150_000
KILL_AFTER_ROWS = 9_000
WAIT_S = 60


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    reads, writes = os.pipe()
    return os.fdopen(reads, "rb"), os.fdopen(writes, "wb")


class EmbeddedWriter(NamedTuple):
    """A program that holds a database open; it writes once more and ends when its stdin is closed."""

    process: Fork
    stdin: IO[bytes]
    stderr: IO[bytes]

    def end(self) -> tuple[int, bytes]:
        """Let it end; return its exit code and what it wrote to stderr."""
        self.stdin.close()
        code = self.process.wait(WAIT_S)
        self.stderr.seek(0)
        return code, self.stderr.read()


@contextmanager
def embedded_writer(url: str, endpoint: str = "") -> Iterator[EmbeddedWriter]:
    """Run a program that holds the database open until the end of the block."""
    module = f"{__package__}.embedded_writer"
    (its_stdin, stdin), (stdout, its_stdout) = _pipe(), _pipe()
    with stdin, stdout, tempfile.TemporaryFile() as stderr:
        with its_stdin, its_stdout:
            stdio = (its_stdin, its_stdout, stderr)
            process = Fork(module, url, endpoint, env=ENVIRONMENT, folder=REPOSITORY, stdio=stdio)
        try:
            assert stdout.readline() == b"ready\n"
            yield EmbeddedWriter(process, stdin, stderr)
        finally:
            process.kill()
            process.wait(WAIT_S)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/db"


@contextmanager
def writer_of(url: str, folder: Path, **environment: str) -> Iterator[Daemon]:
    """Run the writer of a database; it must end as it was told to."""
    with running("shale_writer", "--url", url, "--port", "0", log=folder / "writer.log", env=environment) as daemon:
        daemon.wait_for("daemon.ready")
        yield daemon
        assert daemon.stop() == 0


def address_of(daemon: Daemon, port: str = "port") -> str:
    return f"http://127.0.0.1:{daemon.port(port)}"


def refused(*arguments: str, **environment: str) -> str:
    """Run a command that writes; return its one line of error."""
    result = shale("kv", *arguments, **environment)
    assert (result.returncode, result.stdout) == (75, b""), result.stderr
    lines = result.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.slow
def test_a_writer_without_http_is_not_fenced(url: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.ndjson"
    rows.write_text('{"key": "a", "value": "1"}\n')
    with embedded_writer(url) as child:
        for command in (
            ("put", "a", "1"),
            ("delete", "a"),
            ("delete", "--prefix", "a", "--yes"),
            ("import", str(rows)),
        ):
            line = refused(*command, "-u", url)
            assert line.startswith(f"shale: {url}: writer epoch 1 is running (on host {os.uname().nodename}, since 20")
            assert "; it serves no HTTP: write in its program, stop it, or replace" in line
            assert line.endswith("replace it with --take-over")
        code, errors = child.end()
        assert code == 0, errors
    assert shale("kv", "get", "own", "--raw", "-u", url).stdout == b"2"
    assert shale("kv", "put", "a", "1", "-u", url).returncode == 0, "a closed database is opened as ever"
    assert shale("kv", "put", "a", "2", "-u", url).returncode == 0


def test_a_writer_is_replaced_on_request(url: str) -> None:
    with embedded_writer(url) as child:
        assert shale("kv", "put", "a", "1", "--take-over", "-u", url).returncode == 0
        code, errors = child.end()
        assert code == 1
        assert b"FencedError" in errors
        assert b"a database has one writer: let other processes write through its HTTP API" in errors
    assert shale("kv", "get", "a", "--raw", "-u", url).stdout == b"1"


def test_a_dead_address_is_told(url: str) -> None:
    with embedded_writer(url, endpoint="http://127.0.0.1:1") as child:
        assert "it does not answer: http://127.0.0.1:1: ConnectError" in refused("put", "a", "1", "-u", url)
        child.process.kill()
    assert "its sign of life expires at 20" in refused("put", "a", "1", "-u", url)
    assert shale("kv", "put", "a", "1", "--take-over", "-u", url).returncode == 0


@pytest.mark.slow
def test_an_address_that_belongs_to_another_database_gets_no_rows(url: str, tmp_path: Path) -> None:
    with writer_of(f"file://{tmp_path}/other", tmp_path) as writer:
        address, admin = address_of(writer), address_of(writer, "admin_port")
        with embedded_writer(url, endpoint=address):
            assert f"{address} is the writer of another database" in refused("put", "a", "1", "-u", url)
        with embedded_writer(f"{url}2", endpoint=admin):
            assert f"{admin} is another process" in refused("put", "a", "1", "-u", f"{url}2")
        assert json.loads(shale("kv", "scan", "--count", "-u", f"file://{tmp_path}/other").stdout)["rows"] == 0


@pytest.mark.slow
def test_a_copy_of_a_database_in_use_is_not_written_to_the_original(url: str, tmp_path: Path) -> None:
    with writer_of(url, tmp_path):
        assert shale("kv", "put", "a", "1", "-u", url).returncode == 0
        shutil.copytree(tmp_path / "db", tmp_path / "copy")
        line = refused("put", "a", "2", "-u", f"file://{tmp_path}/copy")
        assert f"is the writer of another database, {url}; " in line
        assert shale("kv", "put", "a", "2", "--take-over", "-u", f"file://{tmp_path}/copy").returncode == 0
    assert shale("kv", "get", "a", "--raw", "-u", url).stdout == b"1"


@pytest.mark.slow
def test_an_endpoint_can_be_named(url: str, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("hunter2\n")
    with writer_of(url, tmp_path, SHALE_WRITER__HTTP__BEARER_TOKEN="hunter2") as writer:
        address = address_of(writer)
        without = shale("kv", "put", "a", "1", "-u", url)
        assert without.returncode == 77
        assert b"--token-file (SHALE_TOKEN_FILE)" in without.stderr
        named = {"SHALE_ENDPOINT": address, "SHALE_TOKEN_FILE": str(secret)}
        found = shale("kv", "put", "a", "1", "-u", url, **named)
        assert (found.returncode, found.stderr) == (0, b"")
        assert shale("kv", "put", "b", "1", "--token-file", str(secret), "-u", url).returncode == 0
        both = shale("kv", "put", "a", "1", "--take-over", "-u", url, **named)
        assert (both.returncode, both.stderr.count(b"\n")) == (2, 1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "rows.csv"
    file.write_text("k,v\n" + "".join(f"{number:08},value {number}\n" for number in range(ROWS)))
    return file


def journal_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.import")


def import_command(file: Path, url: str) -> list[str]:
    return ["kv", "import", str(file), "--key", "k", "--value", "v", "-u", url, "-o", "json"]


def kill_midway(file: Path, url: str) -> int:
    """Kill an import after some rows; return how many it has noted."""
    with tempfile.TemporaryFile() as errors, Path(os.devnull).open("r+b") as null:
        stdio = (null, null, errors)
        child = Fork("shale_cli", *import_command(file, url), env=ENVIRONMENT, folder=file.parent, stdio=stdio)
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and child.poll() is None:
            if journal_of(file).exists() and json.loads(journal_of(file).read_bytes())["rows"] >= KILL_AFTER_ROWS:
                break
            time.sleep(0.005)
        child.kill()
        code = child.wait(WAIT_S)
        errors.seek(0)
        assert code == -signal.SIGKILL, errors.read()
    noted: int = json.loads(journal_of(file).read_bytes())["rows"]
    return noted


def count_of(url: str) -> int:
    found: int = json.loads(shale("kv", "scan", "--count", "-u", url, "-o", "json").stdout)["rows"]
    return found


@pytest.mark.slow
def test_a_killed_import_goes_on(file: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    noted = kill_midway(file, url)
    durable = count_of(url)
    assert KILL_AFTER_ROWS <= noted <= durable < ROWS
    resumed = shale(*import_command(file, url), "--resume")
    assert resumed.returncode == 0, resumed.stderr
    report = json.loads(resumed.stdout)
    assert report["skipped"] == noted
    assert report["skipped"] + report["found"] == durable
    assert report["rows"] == ROWS - durable, "nothing that was durable is written again"
    assert count_of(url) == ROWS
    assert shale("kv", "get", f"{ROWS - 1:08}", "--raw", "-u", url).stdout == f"value {ROWS - 1}".encode()
    assert not journal_of(file).exists()


@pytest.mark.slow
def test_it_goes_on_through_a_running_writer(file: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    with writer_of(url, tmp_path) as writer:
        noted = kill_midway(file, url)
        report = json.loads(shale(*import_command(file, url), "--resume", "--endpoint", address_of(writer)).stdout)
        assert report["skipped"] == noted
        assert report["rows"] + report["skipped"] + report["found"] == ROWS
    assert count_of(url) == ROWS


def test_notes_that_do_not_fit_are_refused(file: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    kill_midway(file, url)
    with file.open("a") as stream:
        stream.write("new,row\n")
    refused = shale(*import_command(file, url), "--resume")
    assert refused.returncode == 2
    assert b"rows.csv has changed since: give --skip instead of --resume" in refused.stderr
    os.truncate(file, 100)
    journal_of(file).write_text("nonsense")
    assert b"remove it to begin again" in shale(*import_command(file, url), "--resume").stderr
    assert shale(*import_command(file, url), "--resume", "--skip", "1").returncode == 2
    assert shale("kv", "import", "-", "--resume", "-u", url).returncode == 2


def test_without_an_interrupted_import_it_begins(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("k,v\na,1\n")
    report = json.loads(shale(*import_command(file, f"file://{tmp_path}/db"), "--resume").stdout)
    assert (report["rows"], report["skipped"], report["found"]) == (1, 0, 0)
