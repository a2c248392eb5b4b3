"""PostgreSQL and MariaDB as child processes on free ports, in temporary directories, each stopped by its process id."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port

_START_S = 60.0


@contextmanager
def postgresql() -> Iterator[str]:
    """Run PostgreSQL; yields the URL of an empty database."""
    with _folder("postgres") as (folder, user):
        data, port = folder / "data", free_port()
        _run(["initdb", "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync"], user)
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", f"unix_socket_directories={folder}"]
        with _server(["postgres", "-D", str(data), "-p", str(port), *settings], user):
            _wait(lambda: _succeeds(["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]))
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"


@contextmanager
def mariadb() -> Iterator[str]:
    """Run MariaDB; yields the URL of an empty database."""
    with _folder("mysql") as (folder, user):
        data, port, socket = folder / "data", free_port(), folder / "socket"
        # A server removes temporary files of all servers when it starts, if they share a directory.
        options = ["--no-defaults", f"--datadir={data}", f"--tmpdir={folder}"]
        _run(["mariadb-install-db", *options, "--auth-root-authentication-method=normal"], user)
        place = [f"--port={port}", "--bind-address=127.0.0.1", f"--socket={socket}", f"--pid-file={folder / 'pid'}"]
        with _server(["mariadbd", *options, *place, "--innodb-flush-log-at-trx-commit=0"], user):
            client = ["mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(port), "-u", "root"]
            _wait(lambda: _succeeds([*client, "-e", "CREATE DATABASE IF NOT EXISTS shale"]))
            yield f"mysql://root@127.0.0.1:{port}/shale"


@contextmanager
def _folder(user: str) -> Iterator[tuple[Path, str | None]]:
    """Make a folder for a server, which must not run as root: it belongs to ``user`` then."""
    runs_as = user if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="shale-test-"))
    try:
        if runs_as is not None:
            found = pwd.getpwnam(runs_as)
            os.chown(folder, found.pw_uid, found.pw_gid)
        yield folder, runs_as
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _server(command: Sequence[str], user: str | None) -> Iterator[None]:
    server = subprocess.Popen(
        [_program(command[0]), *command[1:]], user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
    )
    try:
        yield
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)


def _run(command: Sequence[str], user: str | None) -> None:
    done = subprocess.run(
        [_program(command[0]), *command[1:]], user=user, capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run([_program(command[0]), *command[1:]], capture_output=True, check=False).returncode == 0


def _program(name: str) -> str:
    """Return the path of a program; Debian keeps those of PostgreSQL out of the search path."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(versions[-1]) if versions else None)
    assert found is not None, f"{name} is not installed"
    return found


def _wait(is_ready: Callable[[], bool]) -> None:
    end = time.monotonic() + _START_S
    while not is_ready():
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.1)
