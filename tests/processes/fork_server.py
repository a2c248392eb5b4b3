"""A process that has imported all modules, and becomes daemons and commands by forking.

    python -m tests.processes.fork_server CONTROL

``CONTROL`` is the number of a Unix socket.  Each byte on it comes with four descriptors: a socket for one new process,
and its stdin, stdout and stderr.  That socket brings what to run, one line of JSON; back go the process's id and, when
it has ended, how.  The server ends, with all of them, when no process holds the other end of ``CONTROL`` any more.

What is forked is as it would be after ``python -m``: its own arguments, environment, folder, warnings and descriptors,
no handlers of signals, one thread.  It ends as an interpreter ends.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

NUMBER = struct.Struct("<i")
STDIO = 3


class Start(NamedTuple):
    """What to run: ``python [-W error] -m module arguments``, in a folder and with an environment."""

    module: str
    arguments: list[str]
    env: dict[str, str]
    folder: str
    is_strict: bool
    imports: list[str]
    """What it will import, which is imported once, here."""


class _Server:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._running: dict[int, socket.socket] = {}
        self._ended, wakes = socket.socketpair()
        self._ended.setblocking(False)
        wakes.setblocking(False)
        self._wakes = wakes
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def serve(self) -> tuple[Start, list[int]] | None:
        """Fork on request: return in every child the program and its descriptors, here ``None``."""
        while True:
            ready, _, _ = select.select([self._control, self._ended], [], [])
            self._reap()
            if self._control not in ready:
                continue
            message, descriptors, _, _ = socket.recv_fds(self._control, 1, 1 + STDIO)
            if not message:
                for pid in self._running:
                    os.kill(pid, signal.SIGKILL)  # no other process would end them
                return None
            owner, stdio = socket.socket(fileno=descriptors[0]), descriptors[1:]
            with owner.makefile("r", encoding="utf-8") as line:
                start = Start(*json.loads(line.readline()))
            for name in start.imports:
                importlib.import_module(name)
            gc.freeze()  # no child looks through what it has inherited: at its end, that would cost most of all
            pid = os.fork()
            if not pid:
                owner.detach()
                self._detach_descriptors()
                return start, stdio
            self._running[pid] = owner
            for descriptor in stdio:
                os.close(descriptor)
            _say(owner, pid)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            while self._ended.recv(1024):
                pass
        for pid in list(self._running):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                with self._running.pop(pid) as owner:
                    _say(owner, status)

    def _detach_descriptors(self) -> None:
        """Detach descriptors in a child: no later close of the server's objects may hit a reused descriptor."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self._control, self._ended, self._wakes, *self._running.values()):
            each.detach()


def _say(owner: socket.socket, number: int) -> None:
    with suppress(OSError):  # the client has gone away
        owner.sendall(NUMBER.pack(number))


def become(start: Start, stdio: list[int]) -> None:
    """Run the requested program in this process, from its first line to its last."""
    for number, descriptor in enumerate(stdio):
        os.dup2(descriptor, number)
    os.closerange(STDIO, 1 + max(int(each.name) for each in Path("/dev/fd").iterdir()))
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.env)
    sys.path[0] = start.folder
    sys.argv = [start.module, *start.arguments]
    if start.is_strict:
        warnings.simplefilter("error")
    runpy.run_module(start.module, run_name="__main__", alter_sys=True)


def main() -> None:
    """Serve until no client is left; every fork returns through here, too."""
    started = _Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if started is not None:
        become(*started)


if __name__ == "__main__":
    main()
