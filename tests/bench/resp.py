"""The Redis port under redis-benchmark, which shares the machine with it: a writer daemon on a directory.

The reference is the least a server in Python can do on the same sockets: an asyncio protocol that looks at nothing but
how many commands came, and answers each with ``+OK``.
"""

import contextlib
import csv
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench.line import BenchLine
from tests.integration.daemons.daemon_process import running

ROUNDS = 3
KEYS = 100_000
"""Few enough to be in memory, in whatever form: reading from a disk is not measured here."""

CONNECTIONS = 50

_REFERENCE = """
import asyncio

class Answer(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(b"+OK\\r\\n" * data.count(b"\\r\\n*", 0) + b"+OK\\r\\n" * data.startswith(b"*"))

async def main():
    server = await asyncio.get_running_loop().create_server(Answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


def rate(port: int, depth: int, count: int, *command: str) -> float:
    """Commands per second with so many of them sent at once on each connection."""
    options = ["-p", str(port), "-c", str(CONNECTIONS), "-n", str(count), "-P", str(depth), "-r", str(KEYS), "--csv"]
    done = subprocess.run(
        ["redis-benchmark", *options, *command], capture_output=True, text=True, check=True, timeout=300
    )
    rows = list(csv.DictReader(line for line in done.stdout.splitlines() if line.startswith('"')))
    return float(rows[-1]["rps"])


@contextlib.contextmanager
def reference() -> Iterator[int]:
    """The port of the server that does nothing."""
    with subprocess.Popen([sys.executable, "-c", _REFERENCE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


CASES = (
    ("SET, 16 at once", 16, 400_000, ("SET", "key:__rand_int__", "0123456789abcdef"), ">= 60,000/s"),
    ("SET, 32 at once", 32, 400_000, ("SET", "key:__rand_int__", "0123456789abcdef"), ">= 60,000/s"),
    ("GET, 16 at once", 16, 400_000, ("GET", "key:__rand_int__"), ">= 60,000/s"),
    ("SET NX, 16 at once", 16, 100_000, ("SET", "key:__rand_int__", "0123456789abcdef", "NX"), "for comparison"),
    ("INCR, 16 at once", 16, 100_000, ("INCR", "counter:__rand_int__"), "for comparison"),
    ("INCR, one at a time", 1, 50_000, ("INCR", "counter:__rand_int__"), "for comparison"),
    ("SET, one at a time", 1, 50_000, ("SET", "key:__rand_int__", "0123456789abcdef"), "for comparison"),
    ("GET, one at a time", 1, 50_000, ("GET", "key:__rand_int__"), "for comparison"),
)


def resp_lines() -> Iterator[BenchLine]:
    """Commands per second, medians of rounds in turn."""
    if shutil.which("redis-benchmark") is None:
        sys.stderr.write("resp: redis-benchmark is not installed (package redis-tools)\n")
        return
    with tempfile.TemporaryDirectory() as directory, reference() as other:
        url = f"file://{directory}/store/db"
        settings = ["--set", "resp.enabled=true", "--set", "resp.port=0"]
        log = Path(directory) / "log"
        with running("shale_writer", "--url", url, "--port", "0", *settings, log=log, is_fresh=True) as daemon:
            port = daemon.port("resp_port")
            rate(port, 16, 50_000, "SET", "key:__rand_int__", "x")
            for name, depth, count, command, target in CASES:
                both = [
                    (rate(port, depth, count, *command), rate(other, depth, count, *command)) for _ in range(ROUNDS)
                ]
                ours, least = (median(rates) for rates in zip(*both, strict=True))
                yield BenchLine(
                    name=f"RESP {name} | does nothing", ours=ours, reference=least, unit="op/s", target=target
                )
