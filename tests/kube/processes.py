"""Commands, and processes that run until they are stopped by their id."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.kube.errors import KubeCheckError

STOP_S = 10.0
LOG_TAIL = 2000

T = TypeVar("T")


def say(text: str) -> None:
    """Print one line with the time of day."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def run(
    command: Sequence[str],
    *,
    stdin: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 600.0,
) -> str:
    """Run a command and return what it prints.

    Raises:
        KubeCheckError: its exit code is not 0, or it takes longer than ``timeout_s``.
    """
    data = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run(
            command,
            input=data,
            capture_output=True,
            check=False,
            cwd=cwd,
            timeout=timeout_s,
            env={**os.environ, **env} if env else None,
        )
    except subprocess.TimeoutExpired as error:
        raise KubeCheckError(f"{' '.join(command)}: no end after {timeout_s:.0f} s") from error
    if done.returncode != 0:
        printed = (done.stdout + done.stderr).decode(errors="replace")[-LOG_TAIL:]
        raise KubeCheckError(f"{' '.join(command)}: exit code {done.returncode}\n{printed}")
    return done.stdout.decode(errors="replace")


def wait_for(what: str, limit_s: float, look: Callable[[], T | None], *, pause_s: float = 0.5) -> tuple[T, float]:
    """Poll until there is a result; return it and the seconds it took.

    Errors of the check count as "not yet"; the last one is part of the message.

    Raises:
        KubeCheckError: there is none after ``limit_s``.
    """
    start, last = time.monotonic(), ""
    while True:
        try:
            found = look()
            last = ""
        except (KubeCheckError, OSError) as error:
            found, last = None, str(error)
        took_s = time.monotonic() - start
        if found is not None:
            return found, took_s
        if took_s > limit_s:
            raise KubeCheckError(f"{what}: not within {limit_s:.0f} s {last}")
        time.sleep(pause_s)


class Processes:
    """Processes by name, each with a log file; stopped in the opposite order of their start."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def log(self, name: str) -> Path:
        """Return the log file of a process."""
        return self._logs / f"{name}.log"

    def start(self, name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> int:
        """Start a process and return its id."""
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        self._running[name] = process
        return process.pid

    def ended(self) -> str | None:
        """Return the processes that ended by themselves, with the end of their logs."""
        lines = [
            f"{name} ended with {process.returncode}:\n{self.tail(name)}"
            for name, process in self._running.items()
            if process.poll() is not None
        ]
        return "\n".join(lines) or None

    def tail(self, name: str) -> str:
        """Return the end of a log."""
        return self.log(name).read_bytes()[-LOG_TAIL:].decode(errors="replace")

    def wait(self, name: str, limit_s: float) -> None:
        """Wait until a process ends by itself, with 0.

        Raises:
            KubeCheckError: it does not, or ends with another code.
        """
        process = self._running[name]
        wait_for(f"the end of {name}", limit_s, process.poll)
        del self._running[name]
        if process.returncode != 0:
            raise KubeCheckError(f"{name} ended with {process.returncode}: {self.tail(name)}")

    def stop(self, name: str) -> None:
        """Stop one process, with SIGKILL after ten seconds."""
        process = self._running.pop(name)
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop_all(self) -> None:
        """Stop all processes."""
        for name in reversed(list(self._running)):
            with contextlib.suppress(ProcessLookupError):
                self.stop(name)
