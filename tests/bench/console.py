"""What an open console costs a writer at full speed: rows written with and without one client of its event stream.

Both are measured in turn in one run.  The CPU time of the idle process has the least noise; its event loop has one
thread, so the rate of a writer at full speed cannot fall by more than that share of a core.
"""

import http.client
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import cycle
from pathlib import Path
from statistics import median

import msgpack

from tests.bench.line import BenchLine
from tests.integration.daemons.daemon_process import Daemon, running

ROUNDS = 10
IDLE_ROUNDS = 4
WINDOW_S = 4.0
"""Two states of the console."""

WRITERS = 2
BATCH_ROWS = 1000
BODIES = 8
VALUE = b"v" * 100
TARGET = "ratio >= 0.99, on a quiet machine"


class Load:
    """Clients that write batches without pause, and count the rows that were confirmed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._rows = [0] * WRITERS
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write until the block ends."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in self._threads:
                thread.join()

    @property
    def rows(self) -> int:
        """The rows so far."""
        return sum(self._rows)

    def _write(self, number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        headers = {"content-type": "application/msgpack", "x-shale-durability": "memory"}
        for body in cycle(_bodies(number)):
            if self._is_over.is_set():
                return
            connection.request("POST", "/v1/batch", body, headers)
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status < 300, said
            self._rows[number] += BATCH_ROWS


def _bodies(number: int) -> list[bytes]:
    return [
        msgpack.packb(
            {
                "ops": [
                    {"op": "put", "key": b"%d %d %d" % (number, body, row), "value": VALUE} for row in range(BATCH_ROWS)
                ]
            }
        )
        for body in range(BODIES)
    ]


@contextmanager
def open_console(port: int) -> Iterator[None]:
    """Follow the event stream as a page does; the block begins after the first state."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/console/events")
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data: ")
    reader = threading.Thread(target=_read_all, args=(answer,))
    reader.start()
    try:
        yield
    finally:
        if connection.sock is not None:
            connection.sock.shutdown(2)
        reader.join()
        connection.close()


def _read_all(answer: http.client.HTTPResponse) -> None:
    try:
        while answer.readline():
            pass
    except (OSError, http.client.HTTPException):
        return


def cpu_s(process_id: int) -> float:
    """Return the CPU time of a process and its threads (Linux: the clock of another process)."""
    return time.clock_gettime(~process_id << 3 | 2)


def measured(daemon: Daemon, load: Load) -> tuple[float, float]:
    """Return microseconds per row in one window: of CPU time, and of time."""
    rows, cpu, now = load.rows, cpu_s(daemon.process.pid), time.perf_counter()
    time.sleep(WINDOW_S)
    rows = load.rows - rows
    return (cpu_s(daemon.process.pid) - cpu) / rows * 1e6, (time.perf_counter() - now) / rows * 1e6


def busy_percent(daemon: Daemon) -> float:
    """Return the share of a core that a process takes in one window, in percent."""
    begun_s = cpu_s(daemon.process.pid)
    time.sleep(WINDOW_S)
    return (cpu_s(daemon.process.pid) - begun_s) / WINDOW_S * 100


def console_lines() -> Iterator[BenchLine]:
    """Time per row with an open console, and as the reference without one."""
    if not sys.platform.startswith("linux"):
        sys.stderr.write("console: measures on Linux only\n")
        return
    alone: list[tuple[float, float]] = []
    watched: list[tuple[float, float]] = []
    quiet: list[float] = []
    shown: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        place = ["--url", f"file://{directory}/store/db", "--port", "0"]
        # Nothing compacts here, so that only the writer has work.
        place += ["--set", "l0_max_ssts=100000", "--set", "l0_max_ssts_per_key=100000"]
        with running("shale_writer", *place, log=Path(directory) / "log", is_fresh=True) as daemon:
            load, admin_port = Load(daemon.port("port")), daemon.port("admin_port")
            with load.running(), open_console(admin_port):
                time.sleep(WINDOW_S)
            for _ in range(IDLE_ROUNDS):
                quiet.append(busy_percent(daemon))
                with open_console(admin_port):
                    shown.append(busy_percent(daemon))
            load = Load(daemon.port("port"))
            with load.running():
                for number in range(ROUNDS):
                    # The database grows: each of the two comes first in every other round.
                    for is_open in (False, True) if number % 2 else (True, False):
                        with open_console(admin_port) if is_open else nullcontext():
                            (watched if is_open else alone).append(measured(daemon, load))
    yield BenchLine(
        name="CPU of an idle writer, console open",
        ours=median(shown),
        reference=median(quiet),
        unit="% core",
        target="difference <= 1",
    )
    for column, what in enumerate(("CPU time of the writer", "time")):
        ours, reference = ([each[column] for each in found] for found in (watched, alone))
        yield BenchLine.of_rounds(f"a row, console open: {what}", ours, reference, unit="us", target=TARGET)
