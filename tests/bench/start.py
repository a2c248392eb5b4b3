"""What a process costs before it works: time and memory of opens, commands and idle daemons, in fresh processes.

Every line is the median of rounds; ``reference`` is the floor, a process that only imports the packages that the work
cannot do without.  The last lines say where the time of imports goes.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import CLOCK_MONOTONIC as MONOTONIC
from time import clock_gettime, perf_counter, sleep
from typing import NamedTuple

import shale
from shale_cli.framework.probe import ask
from tests.bench.line import BenchLine
from tests.paths import REPOSITORY

ROUNDS = 7
ROWS = 100_000
SETTLE_S = 3.0
READY_TIMEOUT_S = 60.0
DAEMONS = 4
IMPORTS_SHOWN = 8
ENVIRONMENT = {"PYTHONPATH": f"{REPOSITORY}/shared:{REPOSITORY}/services", "PATH": os.environ["PATH"]}
FLOOR_OF_OPEN = "import asyncio, anyio._backends._asyncio, numpy"
FLOOR_OF_DAEMON = (
    "import asyncio, anyio._backends._asyncio, numpy, obstore.store, pydantic_settings, starlette.applications, "
    "starlette.routing, uvicorn, prometheus_client, orjson, structlog"
)
FLOOR_OF_SUPERVISOR = "import asyncio, anyio._backends._asyncio, typer"
COMMANDS = ("kv get key", "db info")


def start_lines() -> Iterator[BenchLine]:
    """Time and memory of a library process, of commands, and of daemons."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"file://{folder}/db"
        asyncio.run(_fill(url))
        yield from _library_lines(url)
        yield from _command_lines(url)
        yield from _daemon_lines(url)
        yield from _import_lines(url)


async def _fill(url: str) -> None:
    async with shale.Db.open(url) as db:
        for start in range(0, ROWS, 1000):
            batch = shale.WriteBatch()
            for number in range(start, start + 1000):
                batch.put(b"%016x" % (number * 0x9E3779B97F4A7C15 % 2**64), b"v" * 100)
            await db.write(batch)
        await (await db.put(b"key", b"value")).durable()


def _library_lines(url: str) -> Iterator[BenchLine]:
    rounds = [_first_calls(url) for _ in range(ROUNDS)]
    floor = median(_wall_ms("-c", FLOOR_OF_OPEN) for _ in range(ROUNDS))
    yield _line("interpreter alone", [_wall_ms("-c", "pass") for _ in range(ROUNDS)], "ms", "told")
    for name, unit, target, reference in (
        ("interpreter, import and open", "ms", "<= 120 ms", floor),
        ("the same, CPU time", "ms", "told", None),
        ("first durable put", "ms", "<= 20 ms", None),
        ("first get", "ms", "<= 1 ms", None),
        ("resident after these", "MB", "told", None),
        ("resident after a scan of 100,000 rows", "MB", "<= 80 MB", None),
    ):
        yield _line(name, [each[name] for each in rounds], unit, target, reference)


def _command_lines(url: str) -> Iterator[BenchLine]:
    for command in COMMANDS:
        times = [_wall_ms("-m", "shale_cli", *command.split(), "-u", url) for _ in range(ROUNDS)]
        yield _line(f"shale {command}", times, "ms", "<= 200 ms")


def _daemon_lines(url: str) -> Iterator[BenchLine]:
    """The idle daemons of one ``shale up``, and all its processes together."""
    floor = _memory_after(FLOOR_OF_DAEMON)
    floor_in_all = DAEMONS * floor.resident + _memory_after(FLOOR_OF_SUPERVISOR).resident
    with _running_stack(url) as up:
        pids = _ready_daemons(up)
        sleep(SETTLE_S)
        found = {name: memory_mb(pid) for name, pid in pids.items()}
        in_all = [memory_mb(pid) for pid in (up.pid, *pids.values())]
    for name, memory in found.items():
        yield _line(f"idle {name}, resident", [memory.resident], "MB", "<= 70 MB", floor.resident)
        yield _line(f"idle {name}, private", [memory.private], "MB", "told", floor.private)
    # The processes map the same libraries: the sum of their resident sizes counts each of these pages five times.  The
    # proportional size is a little too small if other Python processes of the machine map them, too.
    yield _line("shale up in all, proportional", [sum(each.proportional for each in in_all)], "MB", "<= 260 MB")
    yield _line("shale up in all, resident", [sum(each.resident for each in in_all)], "MB", "told", floor_in_all)
    yield _line("shale up in all, private", [sum(each.private for each in in_all)], "MB", "told")


def _import_lines(url: str) -> Iterator[BenchLine]:
    """The packages whose modules take longest, in the imports of an open, a put and a get."""
    rounds = [_import_ms(url) for _ in range(ROUNDS)]
    least = {name: min(each.get(name, 0.0) for each in rounds) for name in rounds[0]}
    longest = sorted(least, key=lambda name: -least[name])[:IMPORTS_SHOWN]
    for name in longest:
        yield _line(f"  import of {name}", [least[name]], "ms", "told")
    yield _line("  all imports", [sum(least.values())], "ms", "told")


def _line(name: str, values: Sequence[float], unit: str, target: str, reference: float | None = None) -> BenchLine:
    return BenchLine(name=name, ours=median(values), reference=reference, unit=unit, target=target)


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=ENVIRONMENT, cwd=REPOSITORY, capture_output=True, text=True, check=True)


def _wall_ms(*arguments: str) -> float:
    started = perf_counter()
    _run(*arguments)
    return (perf_counter() - started) * 1000


def _first_calls(url: str) -> dict[str, float]:
    started = clock_gettime(MONOTONIC)
    told: dict[str, float] = json.loads(_run("-m", "tests.bench.start_process", url, str(started)).stdout)
    return told


def _import_ms(url: str) -> dict[str, float]:
    """Return the milliseconds that the modules of each package take without what they import."""
    times: dict[str, float] = defaultdict(float)
    told = _run("-X", "importtime", "-m", "tests.bench.start_process", url, "0").stderr
    for microseconds, name in re.findall(r"^import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)$", told, re.MULTILINE):
        times[name.partition(".")[0]] += int(microseconds) / 1000
    return times


class Memory(NamedTuple):
    """The memory of a process in MB; ``proportional`` divides each shared page by the processes that map it."""

    resident: float
    proportional: float
    private: float


def memory_mb(pid: int) -> Memory:
    """Return the memory of a process."""
    told = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    megabytes = {name: int(size) / 1024 for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", told, re.MULTILINE)}
    private = megabytes["Private_Clean"] + megabytes["Private_Dirty"]
    return Memory(megabytes["Rss"], megabytes["Pss"], private)


def _memory_after(program: str) -> Memory:
    command = [sys.executable, "-c", f"{program}; print(flush=True); input()"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = memory_mb(process.pid)
        process.communicate(b"\n")
    return found


@contextmanager
def _running_stack(url: str) -> "Iterator[subprocess.Popen[bytes]]":
    command = [sys.executable, "-m", "shale_cli", "up", "-u", url, "--port", "0", "--admin-port", "0"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=ENVIRONMENT, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _ready_daemons(up: "subprocess.Popen[bytes]") -> dict[str, int]:
    """Wait until every daemon of a stack is ready; return their process ids by name."""
    deadline = perf_counter() + READY_TIMEOUT_S
    while perf_counter() < deadline:
        assert up.poll() is None, "shale up has ended"
        found: dict[str, int] = {}
        for pid in Path(f"/proc/{up.pid}/task/{up.pid}/children").read_text(encoding="ascii").split():
            told = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            name = next((word.removeprefix("shale_") for word in told if word.startswith("shale_")), None)
            port = next((word.partition("=")[2] for word in told if word.startswith("--admin-port=")), None)
            if name is not None and port is not None and ask(f"127.0.0.1:{port}", "readyz", 2.0)[0] == 200:
                found[name] = int(pid)
        if len(found) == DAEMONS:
            return found
        sleep(0.1)
    raise TimeoutError("the daemons are not ready")
