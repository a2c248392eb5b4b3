"""Clients of a writer daemon that do not read their responses: memory is bounded, and honest clients are served."""

import contextlib
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from tests.integration.daemons.daemon_process import Daemon, running

MIB = 1 << 20
BUDGET = 8 * MIB
CLIENTS = 20
ROWS, VALUE_BYTES = 8_000, 1000
SCAN = b"POST /v1/scan HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}"
GET = b"GET /v1/kv/large HTTP/1.1\r\nhost: localhost\r\n\r\n"
UNBOUNDED_MIB = 12
"""What one scan held before, with what the kernel and the server buffered."""


@contextlib.contextmanager
def unread(port: int, request: bytes, count: int) -> Iterator[list[socket.socket]]:
    """Send a request on so many connections, and read nothing."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            client.sendall(request)
            clients.append(client)
        yield clients


def resident_bytes(daemon: Daemon) -> int:
    """Return the resident memory of a daemon."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) * 1024


def held_bytes(daemon: Daemon, *parts: str) -> float:
    """Return what parts of a daemon hold."""
    text = daemon.get("/metrics", port=daemon.port("admin_port"))[1]
    return sum(
        float(re.findall(rf'^shale_memory_bytes{{part="{part}"}} (\S+)$', text, re.MULTILINE)[0]) for part in parts
    )


def put(daemon: Daemon, key: str, value: bytes) -> int:
    """Write a row and return the status."""
    return daemon.request("PUT", f"/v1/kv/{key}", port=daemon.port("port"), body=value)[0]


@pytest.mark.slow
def test_unread_scans_and_gets_are_bounded_and_others_are_served(tmp_path: Path) -> None:
    """A client that reads slowly gets everything; what the others have not read is free when they have gone."""
    options = ("--url", f"file://{tmp_path}/store/db", "--port", "0", "--set", f"memory.response_bytes={BUDGET}")
    with running("shale_writer", *options, log=tmp_path / "log") as daemon:
        port = daemon.port("port")
        for first in range(0, ROWS, 4000):
            ops = [
                {"op": "put", "key": b"%08d" % row, "value": b"%08d" % row * (VALUE_BYTES // 8)}
                for row in range(first, first + 4000)
            ]
            body = msgpack.packb({"ops": ops})
            headers = {"content-type": "application/msgpack"}
            assert daemon.request("POST", "/v1/batch", port=port, body=body, headers=headers)[0] == 200
        assert put(daemon, "large", bytes(4 * MIB)) == 204
        before = resident_bytes(daemon)
        with unread(port, SCAN, CLIENTS), unread(port, GET, CLIENTS), unread(port, SCAN, 1) as slow:
            slowest_s, found = 0.0, b""
            for _ in range(10):
                begin_s = time.monotonic()
                assert put(daemon, "probe", b"x") == 204
                slowest_s = max(slowest_s, time.monotonic() - begin_s)
                assert held_bytes(daemon, "responses", "scans") <= BUDGET + 2 * 4 * MIB
                found = found[-200:] + slow[0].recv(20_000)
            assert slowest_s < 5
            assert resident_bytes(daemon) - before < CLIENTS * UNBOUNDED_MIB * MIB // 3
            while b'"end":true' not in found[-200:]:
                more = slow[0].recv(MIB)
                assert more, "a client that reads was dropped"
                found = found[-200:] + more
        while held_bytes(daemon, "responses", "scans"):
            time.sleep(0.1)
        assert daemon.process.poll() is None


def test_unread_values_of_medium_size_are_bounded_by_dropping_clients(tmp_path: Path) -> None:
    """No memory is reserved for them, so that who reads at once never waits for it."""
    medium = b"GET /v1/kv/medium HTTP/1.1\r\nhost: localhost\r\n\r\n"
    options = ("--url", f"file://{tmp_path}/store/db", "--port", "0", "--set", f"memory.response_bytes={BUDGET}")
    with running("shale_writer", *options, log=tmp_path / "log") as daemon:
        port = daemon.port("port")
        assert put(daemon, "medium", bytes(900 << 10)) == 204
        with unread(port, medium, 3 * CLIENTS) as clients:
            for _ in range(10):
                status, body = daemon.get("/v1/kv/medium", port=port)
                assert (status, len(body)) == (200, 900 << 10)
                assert held_bytes(daemon, "responses") <= BUDGET // 2
            cut = sum(is_cut(client) for client in clients)
            assert cut >= CLIENTS
            metrics = daemon.get("/metrics", port=daemon.port("admin_port"))[1]
            assert f"shale_memory_dropped_connections_total {float(cut)}" in metrics
        assert daemon.process.poll() is None


def test_reads_of_many_keys_stop_when_their_clients_have_gone(tmp_path: Path) -> None:
    """Those that wait for memory would each copy and encode megabytes for no one."""
    options = ("--url", f"file://{tmp_path}/store/db", "--port", "0", "--set", f"memory.response_bytes={BUDGET}")
    with running("shale_writer", *options, log=tmp_path / "log") as daemon:
        port = daemon.port("port")
        for number in range(3):
            assert put(daemon, f"medium{number}", bytes(MIB)) == 204
        body = msgpack.packb({"keys": [b"medium%d" % number for number in range(3)]})
        head = "POST /v1/get-many HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/msgpack\r\n"
        with unread(port, f"{head}content-length: {len(body)}\r\n\r\n".encode() + body, 3 * CLIENTS):
            while metric(daemon, "shale_http_requests_inflight") < CLIENTS:
                time.sleep(0.01)
        while metric(daemon, "shale_http_requests_inflight"):
            time.sleep(0.01)
        answered = metric(daemon, "shale_http_requests_total", 'route="get-many",status="2xx"')
        assert answered <= 2 * CLIENTS
        assert put(daemon, "after", b"1") == 204


def metric(daemon: Daemon, name: str, labels: str = "") -> float:
    """Return the sum of a metric over all series with some labels."""
    text = daemon.get("/metrics", port=daemon.port("admin_port"))[1]
    return sum(map(float, re.findall(rf"^{name}{{[^}}]*{labels}[^}}]*}} (\S+)$", text, re.MULTILINE)))


def is_cut(client: socket.socket) -> bool:
    """Return whether a response ends before its last byte."""
    received = 0
    client.settimeout(5)
    with contextlib.suppress(OSError):
        while received < 900 << 10 and (data := client.recv(MIB)):
            received += len(data)
    return received < 900 << 10
