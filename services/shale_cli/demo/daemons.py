"""The daemons of the demo: child processes that the demo can start, kill, pause and stop."""

import signal
import sys
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired

import anyio
import anyio.to_thread
import httpx

from shale.core.lazy_dataclass import dataclass
from shale.errors import UnavailableError

READY_TIMEOUT_S = 30
STOP_TIMEOUT_S = 20


@dataclass(slots=True)
class Daemon:
    """One child process.  ``options`` are its command line; its log goes to ``log_path``."""

    name: str
    module: str
    options: Sequence[str]
    data_port: int
    admin_port: int
    log_path: Path
    _process: "Popen[bytes] | None" = field(default=None, init=False)

    @property
    def url(self) -> str:
        """The URL of the HTTP API."""
        return f"http://127.0.0.1:{self.data_port}"

    @property
    def admin_url(self) -> str:
        """The URL of the admin port."""
        return f"http://127.0.0.1:{self.admin_port}"

    @property
    def pid(self) -> int:
        """Process id of the running child."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; ``None`` while the process runs."""
        return None if self._process is None else self._process.poll()

    @property
    def is_running(self) -> bool:
        """Whether the process has started and not ended."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start the process and wait until it is ready.

        Raises:
            UnavailableError: the process ended, or was not ready in time.
        """
        self._process = self._spawn()
        with anyio.move_on_after(READY_TIMEOUT_S):
            async with httpx.AsyncClient() as client:
                while not await self._is_ready(client):
                    await anyio.sleep(0.05)
            return
        raise UnavailableError(f"{self.name} is not ready after {READY_TIMEOUT_S} s, see {self.log_path}")

    def _spawn(self) -> "Popen[bytes]":
        command = [sys.executable, "-m", self.module, *self.options]
        with self.log_path.open("ab") as log:
            return Popen(command, stdin=DEVNULL, stdout=log, stderr=log)  # noqa: S603 - a module of Shale and its own arguments

    async def _is_ready(self, client: httpx.AsyncClient) -> bool:
        if self.exit_code is not None:
            raise UnavailableError(f"{self.name} exited with {self.exit_code} during its start, see {self.log_path}")
        try:
            return (await client.get(f"{self.admin_url}/readyz", timeout=2)).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """Send SIGKILL: the process ends without a flush."""
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """Send SIGSTOP: the process stays alive but does nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT: the process continues."""
        self._signal(signal.SIGCONT)

    async def stop(self) -> int:
        """Send SIGTERM and wait; kill the process if it does not end in time."""
        if self.exit_code is None:
            self._signal(signal.SIGTERM)
        return await self.wait()

    async def wait(self) -> int:
        """Wait for the end and return the exit code; kill the process after a time limit."""
        process = self._process
        if process is None:
            return 0
        try:
            return await anyio.to_thread.run_sync(lambda: process.wait(STOP_TIMEOUT_S))
        except TimeoutExpired:
            process.kill()
            return await anyio.to_thread.run_sync(process.wait)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
