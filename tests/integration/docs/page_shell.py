"""A terminal in which the commands of a page run: one folder, one environment, daemons in the background."""

import os
import re
import shlex
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import IO

from shale_cli.framework.daemons import DAEMONS, VERBS
from tests.code_blocks import commands
from tests.paths import PYTHONPATH, REPOSITORY
from tests.processes import forks

COMMAND_S = 120
READY_S = 120
STOP_S = 60
SHOWN_S = 60
PORTS = [8080, 8081, 8082, 6379, 9464, 9465, 9466, 9467, 9468]
"""Ports that pages name.  ``shale up`` takes consecutive ones, so they are moved together."""
_GUARD = 6000
_PROBLEM = "urn:shale:problem:"
_READS = ("curl http", "shale db info", "shale kv scan", "shale compaction list")
_UP_ADMIN_PORTS = (9464, 9465, 9466, 9467)


class PageShell:
    """Runs command lines as a reader types them, on free ports and with its own stores.

    ``/tmp/shale`` is a folder of the test, and buckets are those of ``s3_endpoint``.  A daemon runs in the background
    until the end, or until another daemon needs its admin port.
    """

    def __init__(self, folder: Path, s3_endpoint: str) -> None:
        self._folder = folder
        self._endpoint = s3_endpoint
        self._guard, self._ports = _free_ports()
        self._daemons: dict[int, subprocess.Popen[bytes]] = {}
        (folder / "shale").mkdir()
        _install(folder / ".venv" / "bin")
        self._forks, variables = forks.command_environment()
        self._environment = {
            **variables,
            "PATH": f"{folder}/.venv/bin:{os.environ['PATH']}",
            "HOME": os.environ["HOME"],
            "PYTHONPATH": PYTHONPATH,
            "SHALE_URL": "s3://bucket/orders",
            "SHALE_STORE__ENDPOINT": s3_endpoint,
            "SHALE_STORE__REGION": "us-east-1",
            "SHALE_STORE__ACCESS_KEY_ID": "shale",
            "SHALE_STORE__SECRET_ACCESS_KEY": "shale-local",
            "URL": "s3://bucket/orders",
            "STORE": "s3://bucket",
        }

    def run(self, text: str) -> str:
        """Execute the command lines of a block and return what they print to stdout.

        Raises:
            AssertionError: a command failed, or a daemon did not become ready.
        """
        printed = ""
        for line in commands(text):
            if (admin_ports := _admin_ports(line)) is None:
                printed += self._execute(self._moved(line))
            else:
                self._start(line, admin_ports)
        return printed

    def require_output(self, shown: str, printed: str, text: str) -> None:
        """Compare what a page shows with what a block printed; ``…`` stands for anything.

        A block that only reads is repeated, as by a reader of the page who waits for a poll or a compaction.

        Raises:
            AssertionError: they differ.
        """
        pattern = re.compile(".*?".join(map(re.escape, self._moved(shown).strip().split("…"))), re.DOTALL)
        deadline = time.monotonic() + SHOWN_S
        only_reads = all(line.startswith(_READS) for line in commands(text))
        while pattern.fullmatch(printed.strip()) is None:
            may_change = only_reads and time.monotonic() < deadline
            assert may_change, f"{text}\nprints\n{printed}\nand not\n{shown}"
            time.sleep(0.5)
            printed = self.run(text)

    def close(self) -> None:
        """Stop all daemons as Ctrl-C does.

        Raises:
            AssertionError: one ended before, or with an error.
        """
        for port in list(self._daemons):
            self._stop(port)

    def abandon(self) -> None:
        """Stop the daemons that are left after a failure, and release the ports."""
        for child in self._daemons.values():
            child.send_signal(signal.SIGTERM)  # SIGKILL would leave the children of `shale up` running
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._guard.close()

    def _execute(self, line: str) -> str:
        """Execute one line and keep the variables that it exports."""
        variables = self._folder / ".environment"
        script = f"set -eu -o pipefail\n{line}\nenv -0 > {shlex.quote(str(variables))}\n"
        with self._child(script, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            try:
                printed, errors = (data.decode() for data in child.communicate(timeout=COMMAND_S))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)  # bash alone would leave its command running
                raise
        assert child.returncode == 0, f"{line}\nexit code {child.returncode}\n{printed}{errors}"
        # curl exits with 0 after an HTTP error; a read may be too early, and `require_output` repeats it.
        assert _PROBLEM not in printed or line.startswith(_READS), f"{line}\n{printed}"
        self._environment = dict(
            entry.split("=", 1) for entry in variables.read_text().split("\0") if entry and not entry.startswith("_=")
        )
        return printed

    def _child(self, script: str, *, stdout: int | IO[bytes], stderr: int | IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start bash with a process group of its own."""
        return subprocess.Popen(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[self._forks],
            stdout=stdout,
            stderr=stderr,
        )

    def _start(self, line: str, admin_ports: tuple[int, ...]) -> None:
        for port in admin_ports:
            if port in self._daemons:
                self._stop(port)
        options = "" if "admin.port" in line else f" --admin-port {self._ports[admin_ports[0]]}"
        if "http.port" not in line and not line.startswith("shale gc"):
            options += f" --port {self._ports[8080]}"
        if "resp.enabled" in line:
            options += f" --set resp.port={self._ports[6379]}"
        log = (self._folder / f"daemon-{admin_ports[0]}.log").open("ab")
        with log:
            self._daemons[admin_ports[0]] = self._child(f"exec {self._moved(line)}{options}", stdout=log, stderr=log)
        for port in admin_ports:
            self._wait_until_ready(line, admin_ports[0], self._ports[port])

    def _wait_until_ready(self, line: str, name: int, port: int) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and self._daemons[name].poll() is None:
            with (
                suppress(urllib.error.URLError, ConnectionError, TimeoutError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as reply,
            ):
                if reply.status == 200:
                    return
            time.sleep(0.1)
        log = (self._folder / f"daemon-{name}.log").read_text()
        raise AssertionError(f"{line}: not ready on port {port}\n{log[-2000:]}")

    def _stop(self, port: int) -> None:
        child = self._daemons.pop(port)
        assert child.poll() is None, f"a daemon on port {port} ended with {child.returncode}"
        child.send_signal(signal.SIGINT)
        try:
            code = child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
        assert code == 0, (self._folder / f"daemon-{port}.log").read_text()[-2000:]

    def _moved(self, text: str) -> str:
        """Return a text of a page with the ports, folders and endpoints of this test."""
        text = text.replace("/tmp/shale", f"{self._folder}/shale").replace("http://127.0.0.1:7070", self._endpoint)
        return re.sub(r"\b\d{4}\b", lambda found: str(self._ports.get(int(found[0]), found[0])), text)


def _admin_ports(line: str) -> tuple[int, ...] | None:
    """Return the admin ports of a command line that runs until Ctrl-C; ``None`` for other commands."""
    words = shlex.split(line, comments=True)
    if words[:2] == ["shale", "up"]:
        return _UP_ADMIN_PORTS
    is_daemon = words[0] == "shale" and words[1] in DAEMONS and words[2:3] != ["--help"]
    if not is_daemon or words[2:3] in [[verb] for verb in VERBS.get(words[1], ())] or "--once" in words:
        return None
    own = [int(word.partition("=")[2]) for word in words if word.startswith("admin.port=")]
    return tuple(own) or (9464,)


def _install(folder: Path) -> None:
    """Write the command ``shale`` of the sources that are tested: a fork, which starts in milliseconds."""
    folder.mkdir(parents=True)
    command = folder / "shale"
    command.write_text(f'#!/bin/sh\nexec {forks.command("shale_cli")} "$@"\n')
    command.chmod(0o755)
    (folder.parents[1] / "Makefile").symlink_to(REPOSITORY / "Makefile")


def _free_ports() -> tuple[socket.socket, dict[int, int]]:
    """Return a free port for each of ``PORTS``, at the same distances, and a socket that reserves them for this test.

    Tests that run at the same time bind different guards.  No multiple of the step is a difference of two ports, so
    their ports differ, too.
    """
    for distance in range(11_000, 23_000, 97):  # below the ports that the system assigns
        guard = socket.socket()
        with suppress(OSError):
            guard.bind(("127.0.0.1", _GUARD + distance))
            moved = {port: port + distance for port in PORTS}
            for port in moved.values():
                _require_free(port)
            return guard, moved
        guard.close()
    raise AssertionError("no ports are free")


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
