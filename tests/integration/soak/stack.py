"""The daemons of a soak, run as processes that a test kills."""

from http.client import HTTPException
from pathlib import Path

import msgpack

from tests.integration.daemons.daemon_process import Daemon

MIN_AGE = "3s"
STALENESS = "1s"
SETTINGS = {
    "shale_writer": {
        "flush_interval": "10ms",
        "l0_sst_size_bytes": "200KiB",
        "wal_stall_limit": STALENESS,
        "probe_max_staleness": STALENESS,
    },
    "shale_compactor": {
        "compactor_options.poll_interval": "100ms",
        "compactor_options.commit_compacted_interval": "50ms",
        "compactor_options.checkpoint_lifetime": "2s",
        "compactor_options.worker_heartbeat_timeout": "2s",
        "compactor_options.worker.heartbeat_interval": "500ms",
        "compactor_options.worker.compactions_poll_interval": "100ms",
        "compactor_options.worker.max_sst_size": "100KiB",
        "probe_max_staleness": STALENESS,
    },
    "shale_gc": {
        "probe_max_staleness": STALENESS,
        **{
            f"garbage_collector_options.{task}_options.{name}": value
            for task in ("manifest", "wal", "compacted", "compactions")
            for name, value in (("interval", "500ms"), ("min_age", MIN_AGE))
        },
    },
    "shale_reader": {
        "manifest_poll_interval": "100ms",
        "probe_max_staleness": STALENESS,
    },
}
SERVERS = frozenset({"shale_writer", "shale_reader"})
"""The daemons with a port for clients."""


class Stack:
    """The four daemons; one of each role at a time."""

    def __init__(self, url: str, logs: Path, environment: dict[str, str]) -> None:
        self._url = url
        self._logs = logs
        self._environment = environment
        self._daemons: dict[str, Daemon] = {}

    def start(self, role: str) -> None:
        options = ["--url", self._url, "--set", "ready.grace=5s"]
        if role in SERVERS:
            options += ["--port", "0"]
        if role == "shale_compactor":
            options += ["--take-over"]
        for name, value in SETTINGS[role].items():
            options += ["--set", f"{name}={value}"]
        number = len(list(self._logs.glob(f"{role}.*")))
        self._daemons[role] = Daemon(role, *options, log=self._logs / f"{role}.{number}", env=self._environment)

    def wait_until_ready(self, role: str) -> None:
        self._daemons[role].wait_for("daemon.ready")

    def kill(self, role: str) -> None:
        process = self._daemons[role].process
        assert process.poll() is None, f"{role} ended by itself with {process.returncode}: {self._daemons[role].log}"
        process.kill()
        process.wait()

    def stop_all(self) -> dict[str, int]:
        return {role: daemon.stop() for role, daemon in self._daemons.items()}

    def kill_all(self) -> None:
        for daemon in self._daemons.values():
            daemon.process.kill()
            daemon.process.wait()

    def try_write(self, rows: list[tuple[bytes, bytes]]) -> bool:
        """Write one durable batch; return false if its durability is not confirmed."""
        writer = self._daemons["shale_writer"]
        try:
            status, _, _ = writer.request(
                "POST",
                "/v1/batch",
                port=writer.port("port"),
                body=msgpack.packb({"ops": [("put", key, value) for key, value in rows]}),
                headers={"content-type": "application/msgpack"},
            )
        except (OSError, AssertionError, HTTPException):
            return False
        return status == 200
