"""Starts a daemon as a process, finds its ports, sends requests, stops it."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.paths import PYTHONPATH
from tests.processes.forks import Fork

READY_S = 120.0
REQUEST_S = 120.0
ENDED_S = 120.0
QUICK_COMPACTION = (
    "--set", "compactor_options.poll_interval=100ms",
    "--set", "compactor_options.commit_compacted_interval=100ms",
    "--set", "compactor_options.worker.compactions_poll_interval=100ms",
)  # fmt: skip
"""Settings of a compactor and of a worker that look for work often."""
"""A fresh machine compiles kernels during the first large request; a busy one takes its time for everything."""
ARE_FRESH = False
"""Whether every daemon gets an interpreter of its own, as in the long runs (``tests/integration/conftest.py``)."""


class Daemon:
    """One process, whose log is collected in a file.

    ``is_fresh``: with an interpreter of its own, as in production; otherwise a fork, which starts much faster.
    ``prefix``: a command that starts a fresh interpreter, for example in a control group.
    """

    process: "Fork | subprocess.Popen[bytes]"

    def __init__(
        self,
        module: str,
        *args: str,
        log: Path,
        env: dict[str, str] | None = None,
        is_fresh: bool = False,
        prefix: tuple[str, ...] = (),
    ) -> None:
        self.log = log
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH, **(env or {})}
        arguments = [module, *args, "--admin-port", "0"]
        with log.open("ab") as stderr, Path(os.devnull).open("r+b") as null:
            if is_fresh or ARE_FRESH or prefix:
                command = [*prefix, sys.executable, "-W", "error", "-m", *arguments]
                self.process = subprocess.Popen(
                    command, stdin=null, stdout=null, stderr=stderr, env=environment, cwd=log.parent
                )
            else:
                stdio = (null, null, stderr)
                self.process = Fork(*arguments, env=environment, folder=log.parent, stdio=stdio, is_strict=True)

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """Return the log lines so far."""
        whole = [line for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        lines = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in lines if event is None or line["event"] == event]

    def wait_for(self, event: str, timeout_s: float = READY_S) -> dict[str, Any]:
        """Wait for the first line with this event."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if found := self.lines(event):
                return found[0]
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no {event}; exit code {self.process.poll()}\n{self.log.read_text()}")

    def port(self, name: str) -> int:
        """Return a port that the kernel chose, from the process's listening sockets."""
        return int(self.wait_for("daemon.ready")[name])

    def get(self, path: str, *, port: int, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Return status and text."""
        status, body, _ = self.request("GET", path, port=port, headers=headers)
        return status, body.decode()

    def request(
        self, method: str, path: str, *, port: int, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers (lower case)."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", data=body, method=method, headers=headers or {}
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
                return answer.status, answer.read(), {name.lower(): value for name, value in answer.headers.items()}
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), {name.lower(): value for name, value in error.headers.items()}

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 90.0) -> int:
        """Send a signal and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout_s)


@contextlib.contextmanager
def running(
    module: str,
    *args: str,
    log: Path,
    env: dict[str, str] | None = None,
    is_fresh: bool = False,
    prefix: tuple[str, ...] = (),
) -> Iterator[Daemon]:
    """Run a daemon that is stopped at the end of the block."""
    daemon = Daemon(module, *args, log=log, env=env, is_fresh=is_fresh, prefix=prefix)
    try:
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()


def metric(text: str, name: str) -> float:
    """Return the value of the first sample of a metric."""
    found = re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? ([0-9.e+-]+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])
