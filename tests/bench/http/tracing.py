"""What traces cost a small request: the CPU time of two writers, of which one keeps one trace of a hundred."""

import http.client
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.bench.console import cpu_s
from tests.bench.line import BenchLine
from tests.integration.daemons.daemon_process import Daemon, running
from tests.integration.store.servers import http_server

ROUNDS = 15
REQUESTS = 2000
SETTINGS = {"off": "tracing.enabled=false", "at 1 %": "tracing.enabled=true"}


class _Sink(BaseHTTPRequestHandler):
    """Takes spans and keeps none."""

    def do_POST(self) -> None:
        """Take one export."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def cpu_us(daemon: Daemon, connection: http.client.HTTPConnection, method: str) -> float:
    """Return microseconds of CPU time per request."""
    begun_s = cpu_s(daemon.process.pid)
    headers = {"x-shale-durability": "memory"}
    for number in range(REQUESTS):
        connection.request(method, f"/v1/kv/{number}", b"v" * 100 if method == "PUT" else None, headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status in {200, 204}
    return (cpu_s(daemon.process.pid) - begun_s) / REQUESTS * 1e6


def tracing_lines() -> Iterator[BenchLine]:
    """CPU time of a request with traces, and as the reference without."""
    if not sys.platform.startswith("linux"):
        sys.stderr.write("tracing: measures on Linux only\n")
        return
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": stack.enter_context(http_server(_Sink))}
        daemons: dict[str, tuple[Daemon, http.client.HTTPConnection]] = {}
        for what, setting in SETTINGS.items():
            folder = Path(name) / what.replace(" ", "")
            folder.mkdir()
            place = ("--url", f"file://{folder}/store/db", "--port", "0", "--set", setting)
            daemon = stack.enter_context(running("shale_writer", *place, log=folder / "log", env=env, is_fresh=True))
            daemons[what] = daemon, http.client.HTTPConnection("127.0.0.1", daemon.port("port"))
        for method in ("PUT", "GET"):
            taken: dict[str, list[float]] = {what: [] for what in SETTINGS}
            for number in range(-1, ROUNDS):
                for what in SETTINGS if number % 2 else reversed(SETTINGS):
                    us = cpu_us(*daemons[what], method)
                    if number >= 0:
                        taken[what].append(us)
            yield BenchLine.of_rounds(
                f"{method}, CPU of the writer, traces at 1 %",
                taken["at 1 %"],
                taken["off"],
                unit="us",
                target="ratio >= 0.98",
            )
        for _, connection in daemons.values():
            connection.close()
