"""What traces cost a request, in instructions: without them, with none kept, and with all of them exported."""

import tempfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from statistics import median

from tests.bench.http.instructions import can_count, count_instructions
from tests.bench.line import BenchLine
from tests.integration.store.servers import http_server

SHARE = 0.01
REQUESTS = 128
"""As many as ``tests.bench.http.counted`` sends."""


class _Sink(BaseHTTPRequestHandler):
    """Takes spans and keeps none."""

    def do_POST(self) -> None:
        """Take one export."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def tracing_lines() -> Iterator[BenchLine]:
    """Instructions of a request with traces of which 1 % is kept, and as the reference without."""
    if not can_count():
        return
    with tempfile.TemporaryDirectory() as name, http_server(_Sink) as sink:
        # Spans are exported when there are many, as under load, and at the end of the counting.
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink, "OTEL_BSP_SCHEDULE_DELAY": "3600000"}
        counted = count_instructions(Path(name), "tests.bench.http.counted", "tracing", env=env)
    counts = {name: median(each) / REQUESTS for name, each in counted.items()}
    for kind in dict.fromkeys(name.rpartition(", ")[0] for name in counts):
        off, none, every = (counts[f"{kind}, {mode}"] for mode in ("off", "none", "all"))
        yield _line(f"{kind}, traces on, none kept", none, off, "for comparison")
        yield _line(f"{kind}, every trace kept and exported", every, off, "for comparison")
        yield _line(f"{kind}, 1 % of the traces kept", none + (every - none) * SHARE, off, "ratio >= 0.98")


def _line(name: str, ours: float, reference: float, target: str) -> BenchLine:
    return BenchLine(name=name, ours=ours, reference=reference, unit="instr.", target=target, ratio=reference / ours)
