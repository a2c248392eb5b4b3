"""The network interface: a real writer, and a trivial Starlette application on the same server, asked in turn.

The load comes from ``wrk`` where it is installed, else from a client of our own, which takes more of the machine.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import cast

import msgpack

from tests.bench.line import BenchLine
from tests.bench.peers import key_of
from tests.paths import PYTHONPATH
from tests.ports import free_port

ROUNDS = 5
SECONDS = 3
WARM_S = 8
CONNECTIONS = 100
VALUE = b"v" * 100
BATCH_ROWS = 1000
BATCHES = 300
LARGE_ROWS = 10_000
LARGE_BATCHES = 20
SCAN_ROWS = 1_000_000
START_S = 60.0

_LUA = """
wrk.method = "PUT"
wrk.body = string.rep("v", 100)
wrk.headers["X-Shale-Durability"] = "%s"
local n = 0
request = function()
  n = n + 1
  return wrk.format(nil, string.format("/v1/kv/%%08x%%08x", math.random(0, 2147483647), n))
end
"""


@contextlib.contextmanager
def process(*command: str, port: int) -> Iterator[int]:
    """A server on a port, once it listens."""
    with subprocess.Popen(
        [sys.executable, *command], env={**os.environ, "PYTHONPATH": PYTHONPATH}, stderr=subprocess.DEVNULL
    ) as child:
        try:
            deadline_s = time.monotonic() + START_S
            while not _listens(port):
                assert child.poll() is None, command
                assert time.monotonic() < deadline_s, command
                time.sleep(0.1)
            yield port
        finally:
            child.send_signal(signal.SIGTERM)


def _writer(directory: Path, port: int, admin_port: int, flush_interval: str) -> contextlib.AbstractContextManager[int]:
    where = ("--url", f"file://{directory}/db", "--port", str(port), "--admin-port", str(admin_port))
    settings = (f"flush_interval={flush_interval}", "log.level=warning", "l0_max_ssts=1000")
    return process("-m", "shale_writer", *where, *(f"--set={each}" for each in settings), port=port)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def puts_per_s(port: int, directory: Path, durability: str, seconds: int = SECONDS) -> float:
    """Accepted PUTs a second on ``CONNECTIONS`` connections."""
    if shutil.which("wrk") is None:
        return asyncio.run(_own_load(port, durability, seconds))
    script = directory / f"{durability}.lua"
    script.write_text(_LUA % durability)
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(script), f"http://127.0.0.1:{port}"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in told, told
    found = re.search(r"Requests/sec:\s+([\d.]+)", told)
    assert found is not None, told
    return float(found[1])


async def _own_load(port: int, durability: str, seconds: int) -> float:
    done = 0
    end_s = time.monotonic() + seconds

    async def client(number: int) -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"HTTP/1.1\r\nHost: localhost\r\nX-Shale-Durability: {durability}\r\nContent-Length: {len(VALUE)}\r\n\r\n"
        )
        turn = 0
        while time.monotonic() < end_s:
            turn += 1
            writer.write(b"PUT /v1/kv/%s %s" % (key_of(number << 32 | turn), head.encode()) + VALUE)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 204"), answer
            done += 1
        writer.close()

    async with asyncio.TaskGroup() as tasks:
        for number in range(CONNECTIONS):
            tasks.create_task(client(number))
    return done / seconds


def batch_rows_per_s(port: int, rows: int = BATCH_ROWS, batches: int = BATCHES, *, packed: bool = True) -> float:
    """Rows a second in batches, one after the other, on one connection."""
    bodies = [_batch_body(turn * rows, rows, packed=packed) for turn in range(batches)]
    media_type = "application/msgpack" if packed else "application/json"
    headers = {"Content-Type": media_type, "X-Shale-Durability": "memory"}
    with _connection(port) as ask:
        ask("POST", "/v1/batch", bodies[0], headers)
        start_s = time.perf_counter()
        for body in bodies:
            ask("POST", "/v1/batch", body, headers)
    return batches * rows / (time.perf_counter() - start_s)


def _batch_body(first: int, rows: int, *, packed: bool) -> bytes:
    keys = [key_of(first + row) for row in range(rows)]
    if packed:
        return cast("bytes", msgpack.packb({"ops": [["put", key, VALUE] for key in keys]}))
    value = b64encode(VALUE).decode()
    return json.dumps({"ops": [["put", b64encode(key).decode(), value] for key in keys]}).encode()


@contextlib.contextmanager
def _connection(port: int) -> Iterator["Ask"]:
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Ask(plain)


class Ask:
    """The least that sends a request and receives its answer, so that it is the server that is measured."""

    def __init__(self, plain: socket.socket) -> None:
        self._plain = plain
        self._buffer = bytearray(1 << 20)

    def __call__(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> int:
        """The size of the answer."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        self._plain.sendall(head.encode() + body)
        answer = bytearray()
        while b"\r\n\r\n" not in answer:
            answer += self._received()
        line, _, rest = bytes(answer).partition(b"\r\n\r\n")
        assert line[:10] == b"HTTP/1.1 2", line
        length = re.search(rb"content-length: (\d+)", line, re.IGNORECASE)
        size, tail = len(rest), rest[-5:]
        while size < int(length[1]) if length else tail != b"0\r\n\r\n":
            more = self._received()
            size += len(more)
            tail = (tail + bytes(more[-5:]))[-5:]
        return size

    def _received(self) -> memoryview:
        count = self._plain.recv_into(self._buffer)
        assert count, "the connection was closed"
        return memoryview(self._buffer)[:count]


def arrow_bytes_per_s(port: int) -> float:
    """Bytes a second of a scan of everything, as Arrow."""
    headers = {"Content-Type": "application/json", "Accept": "application/vnd.apache.arrow.stream"}
    with _connection(port) as ask:
        start_s = time.perf_counter()
        size = ask("POST", "/v1/scan", b"{}", headers)
        return size / (time.perf_counter() - start_s)


def load_rows(port: int, count: int) -> None:
    """Something to scan."""
    for first in range(0, count, 20_000):
        ops = [["put", key_of(1 << 32 | row), VALUE] for row in range(first, min(count, first + 20_000))]
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/batch",
            data=msgpack.packb({"ops": ops}),
            headers={"Content-Type": "application/msgpack", "X-Shale-Durability": "memory"},
        )
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 200


def http_lines() -> Iterator[BenchLine]:
    """Requests, rows and megabytes a second."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        trivial, scans, scans_admin = free_port(), free_port(), free_port()
        stack.enter_context(process("-m", "tests.bench.http.trivial", str(trivial), port=trivial))
        for durability, interval, target in (
            ("memory", "100ms", ">= 10,000/s, or within 1.5x of the trivial application"),
            ("durable", "0", ">= 5,000/s, or within 1.5x"),
        ):
            ours, admin = free_port(), free_port()
            stack.enter_context(_writer(directory / durability, ours, admin, interval))
            puts_per_s(ours, directory, durability, WARM_S)
            puts_per_s(trivial, directory, durability, 1)
            pairs = [
                (puts_per_s(ours, directory, durability), puts_per_s(trivial, directory, durability))
                for _ in range(ROUNDS)
            ]
            yield BenchLine(
                name=f"PUT, {durability}, {CONNECTIONS} connections | trivial Starlette",
                ours=median(pair[0] for pair in pairs),
                reference=median(pair[1] for pair in pairs),
                unit="PUTs/s",
                target=target,
            )
        stack.enter_context(_writer(directory / "scans", scans, scans_admin, "100ms"))
        batch_rows_per_s(scans)
        rows = median(batch_rows_per_s(scans) for _ in range(ROUNDS))
        yield BenchLine(name="batches of 1,000, one connection", ours=rows, unit="rows/s", target=">= 300,000 rows/s")
        for packed, kind in ((True, "msgpack"), (False, "JSON")):
            large = [batch_rows_per_s(scans, LARGE_ROWS, LARGE_BATCHES, packed=packed) for _ in range(ROUNDS)]
            yield BenchLine(
                name=f"batches of 10,000, {kind}", ours=median(large), unit="rows/s", target="for comparison"
            )
        load_rows(scans, SCAN_ROWS)
        arrow_bytes_per_s(scans)
        megabytes = median(arrow_bytes_per_s(scans) for _ in range(ROUNDS)) / 1e6
        yield BenchLine(name="scan of 1 M rows, Arrow", ours=megabytes, unit="MB/s", target=">= 300 MB/s")
