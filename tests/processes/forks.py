"""Processes of Shale in tests: forks of one process that has imported all modules.

A process takes half a second of processor time to import what a daemon needs; the suite starts hundreds.  A fork takes
some milliseconds, and is otherwise as if it had been started by ``python -m`` (``tests.processes.fork_server``).
What a fork cannot show is how a fresh interpreter starts; tests of that start one (``subprocess``).
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.paths import PYTHONPATH, REPOSITORY
from tests.processes import fork_client
from tests.processes.fork_server import NUMBER, Start

OURS = [
    *("shale_writer.app", "shale_reader.app", "shale_compactor.app", "shale_compactor.worker", "shale_gc.app"),
    *("shale_cli.framework.app", "shale_cli.commands.kv.app", "shale_cli.commands.db.app", "shale_cli.commands.doctor"),
    *("shale.store.preflight", "shale.store.local_store.adapter", "anyio._backends._asyncio"),
]
"""What daemons and commands import, sooner or later."""
S3 = ["moto.moto_server.werkzeug_app", "moto.s3.urls", "moto.s3control.urls", "werkzeug.test"]
BEFORE_PYTHON = ("PYTHON", "MALLOC", "LD_")
"""Variables that are read before a module is: a fork cannot be given others."""
HARMLESS = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}


class _Server:
    """The process that is forked, started at the first fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def fork(self, start: Start, stdio: tuple[int, int, int]) -> socket.socket:
        """Start a process; return a socket that reports its id and its exit."""
        ours, theirs = socket.socketpair()
        with theirs:
            control = self.control()
            socket.send_fds(control, [b"."], [theirs.fileno(), *stdio])
        ours.sendall(json.dumps(start).encode() + b"\n")
        return ours

    def control(self) -> socket.socket:
        """Return the socket through which processes ask for forks, one message each."""
        with self._lock:
            if self._control is None:
                self._control = self._begin()
            return self._control

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "tests.processes.fork_server", str(theirs.fileno())]
        # A second thread, even one of a library for algebra, would make forking unsafe.
        env = {**os.environ, "PYTHONPATH": PYTHONPATH, "OPENBLAS_NUM_THREADS": "1"}
        env.pop("PYTHONUNBUFFERED", None)
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=env, cwd=REPOSITORY)
        atexit.register(self._end)
        return ours

    def _end(self) -> None:
        assert self._control is not None
        assert self._process is not None
        self._control.close()
        self._process.wait(30)


_SERVER = _Server()


def command(module: str) -> str:
    """Return the start of a shell command that runs a module as a fork; see ``command_environment``."""
    return f"{sys.executable} -I -S {fork_client.__file__} {module}"


def command_environment() -> tuple[int, dict[str, str]]:
    """Return the descriptor that a shell must inherit, and the variables that it must have, for ``command``."""
    number = _SERVER.control().fileno()
    return number, {fork_client.FORKS: json.dumps({"control": number, "imports": OURS})}


class Fork:
    """One process, with the interface of ``subprocess.Popen``."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        env: Mapping[str, str],
        folder: Path,
        stdio: tuple[int | IO[Any], int | IO[Any], int | IO[Any]],
        is_strict: bool = False,
    ) -> None:
        for name, value in env.items():
            other = name.startswith(BEFORE_PYTHON) and name not in HARMLESS and os.environ.get(name) != value
            assert not other, f"{name} is for an interpreter that starts: start one, by subprocess"
        imports = S3 if module == "shale.testing.s3_server" else OURS
        start = Start(module, list(arguments), dict(env), str(folder), is_strict, imports)
        descriptors = [each if isinstance(each, int) else each.fileno() for each in stdio]
        self.args = [module, *arguments]
        self.returncode: int | None = None
        self._line = _SERVER.fork(start, (descriptors[0], descriptors[1], descriptors[2]))
        self.pid = self._number()

    def poll(self) -> int | None:
        """Return the exit code, if it has ended."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._line], [], [], timeout)[0]:
            self.returncode = os.waitstatus_to_exitcode(self._number())
            self._line.close()
        return self.returncode

    def _number(self) -> int:
        got = self._line.recv(NUMBER.size, socket.MSG_WAITALL)
        assert len(got) == NUMBER.size, "the server of forks has gone"
        number: int = NUMBER.unpack(got)[0]
        return number


def run(
    module: str,
    *arguments: str,
    env: Mapping[str, str],
    folder: Path,
    stdin: bytes = b"",
    is_strict: bool = False,
    timeout_s: float = 120,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a process to its end and return its output, as ``subprocess.run`` does."""
    with tempfile.TemporaryFile() as in_, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        in_.write(stdin)
        in_.seek(0)
        process = Fork(module, *arguments, env=env, folder=folder, stdio=(in_, out, err), is_strict=is_strict)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
            process.wait(timeout_s)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(process.args, code, out.read(), err.read())
