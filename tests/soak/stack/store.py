"""The S3 server of a run, and the proxy in front of it."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.store.servers import SECRET, s3_environment
from tests.integration.store.versitygw import find_versitygw
from tests.paths import PYTHONPATH
from tests.soak.plan.faults import STORE
from tests.soak.stack.leftovers import Leftovers
from tests.soak.stack.network import Network
from tests.soak.stack.processes import Command, Supervisor

BUCKET, DATABASE = "soak", "orders"
URL = f"s3://{BUCKET}/{DATABASE}"
READY_S = 60.0
BALLAST = "ballast"


class Store:
    """An S3 server at the node ``store``; all other nodes reach it through the proxy only."""

    def __init__(self, folder: Path, network: Network, supervisor: Supervisor, *, is_small: bool, seed: int) -> None:
        self._folder = folder
        self._network = network
        self._supervisor = supervisor
        self._is_small = is_small
        self._seed = seed
        self._rules = folder / "proxy-rules.json"
        self._counts = folder / "proxy-counts.json"
        self._shares: dict[str, float] = {}
        self._server_port, self._proxy_port = network.port(), network.port()
        self.objects = folder / "objects"
        self.is_on_tmpfs = False

    @property
    def name(self) -> str:
        """Return which server it is."""
        return "versitygw" if self._program else "shale.testing.s3_server"

    @property
    def environment(self) -> dict[str, str]:
        """Return what a process needs to reach the store."""
        return s3_environment(f"http://{self._network.address(STORE)}:{self._proxy_port}")

    @property
    def _program(self) -> str | None:
        return None if self._is_small else find_versitygw()

    def start(self, leftovers: Leftovers, tmpfs_bytes: int | None) -> None:
        """Start server and proxy, and wait until both answer."""
        self.objects.mkdir(parents=True)
        if tmpfs_bytes is not None and self._program:
            mount_tmpfs(self.objects, tmpfs_bytes, leftovers)
            self.is_on_tmpfs = True
        (self.objects / BUCKET).mkdir()
        self._rules.write_text("{}")
        self._supervisor.add("s3-server", self._server_command)
        self._supervisor.add("s3-proxy", self._proxy_command)
        self._wait()

    def _server_command(self, number: int) -> Command:
        host = self._network.address(STORE)
        if self._program:
            words = [self._program, "--access", SECRET, "--secret", SECRET, "--port", f"{host}:{self._server_port}"]
            words += ["--quiet", "posix", str(self.objects)]
        else:
            words = [sys.executable, "-m", "shale.testing.s3_server", str(self._server_port), "--host", host]
            words += ["--bucket", BUCKET]
        return self._command(f"s3-server.{number}", words)

    def _proxy_command(self, number: int) -> Command:
        host = self._network.address(STORE)
        words = [sys.executable, "-m", "tests.soak.proxy", "--host", host, "--port", str(self._proxy_port)]
        words += ["--server", f"{host}:{self._server_port}", "--seed", str(self._seed)]
        words += ["--rules", str(self._rules), "--counts", str(self._counts)]
        return self._command(f"s3-proxy.{number}", words)

    def _command(self, instance: str, words: list[str]) -> Command:
        return Command(instance, self._network.inside(STORE, words), {"PYTHONPATH": PYTHONPATH})

    def _wait(self) -> None:
        """Wait until a request through the proxy reaches the server."""
        url = f"http://{self._network.address(STORE)}:{self._proxy_port}/"
        lines = ("import urllib.request as u, urllib.error as e", f"try: u.urlopen('{url}', timeout=5)")
        ask = "\n".join((*lines, "except e.HTTPError: pass"))
        deadline = time.monotonic() + READY_S
        words = self._network.inside(STORE, [sys.executable, "-c", ask])
        while subprocess.run(words, capture_output=True, check=False, env=dict(os.environ)).returncode:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the S3 server does not answer at {url}")
            time.sleep(0.2)

    def inject(self, kind: str, share: float) -> None:
        """Let a share of the requests meet a fault."""
        self._shares[kind] = share
        self._write_rules()

    def heal(self, kind: str | None = None) -> None:
        """End one fault, or all."""
        if kind is None:
            self._shares.clear()
        else:
            self._shares.pop(kind, None)
        self._write_rules()

    def _write_rules(self) -> None:
        fresh = self._rules.with_suffix(".new")
        fresh.write_text(json.dumps(self._shares))
        fresh.replace(self._rules)

    def counts(self) -> dict[str, int]:
        """Return how many requests met which fault."""
        try:
            found: dict[str, int] = json.loads(self._counts.read_text())
        except (OSError, ValueError):
            return {}
        return found


def mount_tmpfs(folder: Path, size_bytes: int, leftovers: Leftovers) -> None:
    """Mount a file system of this size in memory."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size_bytes}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "shale-soak", str(folder)], check=True, capture_output=True)
    leftovers.mounted(folder)


def fill(folder: Path) -> None:
    """Use up all space of a file system; ``drain`` frees it."""
    with (folder / BALLAST).open("wb", buffering=0) as ballast:
        free = os.statvfs(folder)
        with contextlib.suppress(OSError):  # others write meanwhile
            os.posix_fallocate(ballast.fileno(), 0, free.f_bavail * free.f_frsize)
        ballast.seek(0, os.SEEK_END)
        with contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(4096))


def drain(folder: Path) -> None:
    """Free the space that ``fill`` has used."""
    (folder / BALLAST).unlink(missing_ok=True)


def can_mount(folder: Path) -> bool:
    """Say whether this user may mount a file system with the attributes in which versitygw keeps ETags."""
    probe = folder / "mount-probe"
    probe.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "shale-soak-probe", str(probe)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        return False
    try:
        os.setxattr(probe, "user.shale", b"")
    except OSError:
        return False
    finally:
        subprocess.run(["umount", str(probe)], capture_output=True, check=False)
    return True
