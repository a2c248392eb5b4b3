"""A rolling upgrade under load: ``make upgrade-check PREVIOUS=COMMIT``.

Writer with a standby, reader, compactor, worker and gc run as processes of the previous commit on a directory.  One
after the other is replaced by one of this version, in the order of docs/how-to/operate/upgrade.md, and then back, in
the reverse order.  A client writes all the time, and counts what was acknowledged; at the end each acknowledged row is
there.  The report says how long no write was acknowledged around each step.
"""

import argparse
import contextlib
import itertools
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path

from tests.ports import free_port
from tests.upgrade.versions import Version, checked_out, current

FORWARD = ("reader", "worker", "compactor", "gc", "writer")
BACK = tuple(reversed(FORWARD))
STEP_S = 6.0
READY_S = 120.0
QUICK = (
    *("--set", "compactor_options.poll_interval=200ms"),
    *("--set", "compactor_options.worker.compactions_poll_interval=200ms"),
)
STANDBY = ("--set", "standby.poll_interval=200ms", "--set", "standby.takeover_after=3s")
WRITER = ("--set", "l0_sst_size_bytes=64KiB", "--set", "manifest_poll_interval=200ms")
ROLES: dict[str, tuple[str, ...]] = {
    "writer": ("shale_writer", *WRITER),
    "reader": ("shale_reader", "--set", "manifest_poll_interval=200ms"),
    "compactor": ("shale_compactor", "--no-embedded-worker", "--take-over", *QUICK),
    "worker": ("shale_compactor.worker", *QUICK),
    "gc": ("shale_gc",),
}


KEYS = """
import asyncio, os, sys, shale
async def main():
    reader = await shale.DbReader.open(sys.argv[1])
    print(*[bytes(row.key).decode() async for row in reader.scan()], flush=True)
    await reader.close()
asyncio.run(main())
os._exit(0)
"""


class Daemon:
    """One process of a role, of one version, with a port of its own."""

    def __init__(self, role: str, name: str, version: Version, url: str, folder: Path, *options: str) -> None:
        self.role, self.version = role, version
        self.port, self.log = free_port(), folder / f"{name}-{time.monotonic_ns()}.log"
        module, *settings = ROLES[role]
        ports = ("--port", str(self.port)) if role in ("writer", "reader") else ()
        command = [str(version.python), "-m", module, "--url", url, "--admin-port", str(self.port + 1), *ports]
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(
                [*command, *settings, *options], stdout=out, stderr=out, env=version.environment
            )
        self.wait_for("daemon.ready", "standby.started")

    def wait_for(self, *events: str) -> None:
        """Wait for a line of the log."""
        deadline = time.monotonic() + READY_S
        while not any(f'"{event}"' in self.log.read_text() for event in events):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{self.log.name}: ended with {self._process.poll()}:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    def stop(self) -> int:
        """Stop as an orchestrator does; return the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(READY_S)


class Client:
    """Writes numbered rows to the writer that is active, and notes what was acknowledged."""

    def __init__(self, writers: Callable[[], list[int]]) -> None:
        self._writers = writers
        self.acknowledged: list[float] = []  # the time of each row, by its number
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            number = len(self.acknowledged)
            if not any(self._put(port, number) for port in self._writers()):
                time.sleep(0.02)
                continue
            self.acknowledged.append(time.monotonic())

    @staticmethod
    def _put(port: int, number: int) -> bool:
        headers = {"X-Shale-Durability": "durable"}
        url = f"http://127.0.0.1:{port}/v1/kv/row{number:08}"
        request = urllib.request.Request(url, data=b"%d" % number * 50, method="PUT", headers=headers)
        with contextlib.suppress(OSError, HTTPException, urllib.error.URLError):
            return bool(urllib.request.urlopen(request, timeout=10).status == 204)
        return False

    def gap_s(self, begin: float, end: float) -> float:
        """Return the longest time without an acknowledged write."""
        times = [begin, *(each for each in self.acknowledged if begin < each < end), end]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


class Rolling:
    """The processes of one database, each of which is replaced in turn."""

    def __init__(self, folder: Path, first: Version) -> None:
        self._folder = folder
        self._logs = folder / "logs"
        self._logs.mkdir()
        self._url = f"file://{folder}/db"
        self._daemons: dict[str, Daemon] = {}
        self._start("writer", first)
        self._start("standby", first)
        for role in FORWARD[:-1]:
            self._start(role, first)
        self.client = Client(
            lambda: [self._daemons[name].port for name in ("writer", "standby") if name in self._daemons]
        )

    def _start(self, name: str, version: Version) -> None:
        role, options = ("writer", ("--standby", *STANDBY)) if name in ("writer", "standby") else (name, ())
        self._daemons[name] = Daemon(role, name, version, self._url, self._logs, *options)

    def replace(self, role: str, version: Version) -> list[int]:
        """Replace the processes of a role: of the writer the standby first, which then takes over."""
        names = ("standby", "writer") if role == "writer" else (role,)
        codes = []
        for name in names:
            codes.append(self._daemons[name].stop())
            self._start(name, version)
            if name == "writer":  # the other one has taken over
                self._daemons["standby"].wait_for("writer.promoted")
                self._daemons["writer"], self._daemons["standby"] = self._daemons["standby"], self._daemons["writer"]
        return codes

    def stop(self) -> list[int]:
        """Stop everything."""
        self.client.stop()
        return [daemon.stop() for daemon in reversed(self._daemons.values())]

    def keys(self, version: Version) -> set[str]:
        """Return the keys that a version shows."""
        command = [str(version.python), "-c", KEYS, self._url]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=version.environment)
        return set(done.stdout.split())

    def verify(self) -> None:
        """Verify with this version."""
        command = [sys.executable, "-m", "shale_cli", "verify", "--deep", "-u", self._url]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=current().environment)
        if done.returncode:
            raise SystemExit(f"verify: {done.returncode}:\n{done.stdout}{done.stderr}")


def steps(previous: Version, new: Version) -> Iterator[tuple[str, str, Version]]:
    """Yield what is replaced: direction, role and version."""
    for role in FORWARD:
        yield "upgrade", role, new
    for role in BACK:
        yield "back", role, previous


def check(previous: Version, folder: Path, step_s: float) -> None:
    """Run all steps; print a line for each.

    Raises:
        SystemExit: a row is missing, a process failed, or verify has findings.
    """
    rolling = Rolling(folder, previous)
    try:
        time.sleep(step_s)
        for direction, role, version in steps(previous, current()):
            begin = time.monotonic()
            codes = rolling.replace(role, version)
            time.sleep(step_s)
            gap = rolling.client.gap_s(begin, time.monotonic())
            print(f"{direction:8} {role:10} exit {codes}  longest gap {gap:5.1f} s", flush=True)
            if any(codes):
                raise SystemExit(f"{role} ended with {codes}")
    finally:
        codes = rolling.stop()
    count = len(rolling.client.acknowledged)
    for version in (current(), previous):
        keys = rolling.keys(version)
        missing = [number for number in range(count) if f"row{number:08}" not in keys]
        if missing:
            raise SystemExit(f"{len(missing)} of {count} acknowledged rows are missing, the first is {missing[0]}")
    rolling.verify()
    print(f"{count} acknowledged writes, none is missing; verify has no finding; last exits {codes}")


def main() -> None:
    """Run the check with a previous commit."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade.rolling")
    parser.add_argument("--previous", required=True, help="a commit")
    parser.add_argument("--step", type=float, default=STEP_S, help="seconds of load after each step")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shale-upgrade"))
    try:
        with checked_out(given.previous) as previous:
            check(previous, folder, given.step)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
