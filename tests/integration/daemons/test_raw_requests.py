"""Hostile bytes on the port of a running writer: answered or closed, at most a debug line, no traceback."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemons.raw_requests import CASES, GET, HOST, Case, answers, hang_up
from tests.integration.writer.writer_process import Client, writer

REFUSED = "http.request.refused"
WRITE = b"PUT /v1/kv/a HTTP/1.1\r\n" + HOST + b"content-length: 1\r\n\r\nv"
SCAN = b"POST /v1/scan HTTP/1.1\r\n" + HOST + b"content-length: 2\r\n\r\n{}"
HANG_UPS = 10
PEAK_MAX_BYTES = 256 << 20
"""A writer starts with 80 MiB.  10,000 requests that wait at once took 100 MiB more for each connection."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    # A process of its own, because its peak of memory is measured.
    with writer(tmp_path_factory.mktemp("raw"), "--set", "log.level=debug", is_fresh=True) as one:
        yield one


class Lines:
    """The lines that a daemon has logged since the last call."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._seen = log.stat().st_size

    def new(self) -> Counter[str]:
        """Count lines about requests, and all above the level info, by level; ``text``: those that are no JSON."""
        text = self._log.read_bytes()[self._seen :]
        self._seen += len(text)
        counts: Counter[str] = Counter()
        for line in text.splitlines():
            if not line.startswith(b"{"):
                counts["text"] += 1
            elif (fields := json.loads(line))["event"] == REFUSED or fields["level"] not in ("debug", "info"):
                counts[fields["level"]] += 1
        return counts


def refusals(client: Client) -> dict[int, float]:
    """Return how many requests were refused before they were routed, by status."""
    found = re.findall(r'^shale_http_refusals_total{[^}]*status="(\d+)"[^}]*} (\S+)$', client.metrics(), re.MULTILINE)
    return {int(status): float(count) for status, count in found}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_request_is_answered_or_closed(client: Client, case: Case) -> None:
    lines, before = Lines(client.daemon.log), refusals(client)
    assert answers(client.port, case.sent) == list(case.statuses)
    assert lines.new() == ({"debug": case.debug_lines} if case.debug_lines else {})
    after = refusals(client)
    counted = {
        status: count - before.get(status, 0) for status, count in after.items() if count > before.get(status, 0)
    }
    assert counted == ({case.statuses[-1]: case.debug_lines} if case.debug_lines else {})


def test_a_body_is_kept_whatever_else_the_client_speaks(client: Client) -> None:
    """Java's client offers HTTP/2 with every request; the put stored an empty value."""
    for name in ("another protocol", "another protocol in chunks"):
        client.put(b"raw", b"")
        answers(client.port, next(case.sent for case in CASES if case.name == name))
        assert client.get(b"raw")[1] == b"abc"


@pytest.mark.parametrize("pause_s", [0, 0.01, 0.15])
@pytest.mark.parametrize("sent", [WRITE, GET, SCAN], ids=["write", "get", "scan"])
def test_clients_that_hang_up_leave_no_line(client: Client, sent: bytes, pause_s: float) -> None:
    lines = Lines(client.daemon.log)
    for count in (2, 60):
        for _ in range(HANG_UPS):
            hang_up(client.port, sent * count, pause_s / HANG_UPS)
    assert client.put(b"after", b"1")[0] == 204
    assert lines.new() == {}


def test_memory_stays_bounded(client: Client) -> None:
    for _ in range(HANG_UPS):
        hang_up(client.port, GET * 10_000, 0)
    status = Path(f"/proc/{client.daemon.process.pid}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is not None
    assert int(peak[1]) << 10 < PEAK_MAX_BYTES
