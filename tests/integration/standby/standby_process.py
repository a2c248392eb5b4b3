"""Writers that run as standbys of each other, as processes, and the clients that look for the active one."""

import contextlib
import json
import time
import urllib.error
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path

from tests.integration.daemons.daemon_process import Daemon, running

FAST = (
    *("--set", "standby.poll_interval=100ms", "--set", "standby.takeover_after=1500ms"),
    *("--set", "manifest_poll_interval=100ms", "--set", "flush_interval=0"),
)
LIMIT_S = 60.0
"""A busy machine takes its time; ``make bench BENCH=failover`` measures on a quiet one."""


class Member:
    """One process of a pair: active, or a standby."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        found = daemon.wait_for("standby.started")
        self.port, self.admin_port = int(found["port"]), int(found["admin_port"])

    def put(self, key: bytes, value: bytes) -> int | None:
        """Write one row durably; return the status, or ``None`` without an answer."""
        headers = {"X-Shale-Durability": "durable"}
        with contextlib.suppress(OSError, HTTPException):
            return self.daemon.request("PUT", f"/v1/kv/{key.decode()}", port=self.port, body=value, headers=headers)[0]
        return None

    def get(self, key: bytes) -> tuple[int, bytes]:
        status, body, _ = self.daemon.request("GET", f"/v1/kv/{key.decode()}", port=self.port)
        return status, body

    def readyz(self) -> tuple[int, str]:
        return self.daemon.get("/readyz", port=self.admin_port)

    def is_active(self) -> bool:
        try:
            return self.readyz() == (200, "ok\n")
        except urllib.error.URLError:
            return False

    def promote(self) -> tuple[int, dict[str, object]]:
        status, body, _ = self.daemon.request("POST", "/v1/admin/promote", port=self.admin_port)
        return status, json.loads(body)

    def wait_until_active(self) -> dict[str, object]:
        return self.daemon.wait_for("writer.promoted", LIMIT_S)

    def metrics(self) -> str:
        return self.daemon.get("/metrics", port=self.admin_port)[1]


@contextlib.contextmanager
def member(
    directory: Path, name: str, *args: str, url: str | None = None, env: dict[str, str] | None = None
) -> Iterator[Member]:
    place = url or f"file://{directory}/store/orders"
    options = ("--url", place, "--port", "0", "--standby", *FAST, *args)
    with running("shale_writer", *options, log=directory / name, env=env) as daemon:
        yield Member(daemon)


@contextlib.contextmanager
def pair(directory: Path, *args: str, env: dict[str, str] | None = None) -> Iterator[tuple[Member, Member]]:
    """Run two members; the first one is active, the second one waits."""
    with member(directory, "first", *args, env=env) as first:
        first.daemon.wait_for("daemon.ready")
        with member(directory, "second", *args, env=env) as second:
            second.daemon.wait_for("standby.waiting")
            yield first, second


def wait_for(condition: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, why
        time.sleep(0.02)
