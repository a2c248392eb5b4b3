"""``python -m tests.integration.overload``: how long honest clients wait beside idle and hostile connections.

Honest clients are measured alone and beside the others in turn, because the machine has other things to do.  The check
fails if their p99 beside the others is more than three times their p99 alone, if the writer ends, or if it logs an
error.
"""

import argparse
import asyncio
import contextlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.integration.daemons.daemon_process import Daemon
from tests.integration.daemons.raw_requests import HOST
from tests.integration.overload.hostile import HOSTILE, READY
from tests.integration.overload.place import AUTHORIZED, LARGE_KEY, TOKEN, raise_open_files
from tests.integration.writer.writer_process import Client, kv, writer
from tests.paths import REPOSITORY

CLIENTS = 50
PAUSE_S = 0.2
"""Between two requests of a client."""
RATIO_MAX = 3.0
LARGE_BYTES = 8 << 20
ROWS = 20_000
ROW_BYTES = 500
SETTLE_S = 2.0
"""After all hostile connections are open, and after they are gone."""


class Phase(NamedTuple):
    """The latencies of one phase, in seconds, and the requests that got no 2xx."""

    latencies: list[float]
    failed: int


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, turn: int) -> str:
    """Read an absent row and write one, in turn; return the status."""
    if turn % 2:
        request = b"GET /v1/kv/none HTTP/1.1\r\n" + HOST + AUTHORIZED + b"\r\n"
    else:
        head = b"PUT /v1/kv/honest-%d-%d HTTP/1.1\r\n" % (number, turn) + HOST + AUTHORIZED
        request = head + b"x-shale-durability: memory\r\ncontent-length: 100\r\n\r\n" + b"v" * 100
    writer.write(request)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", answer)
    if length is not None:
        await reader.readexactly(int(length[1]))
    return answer[9:12].decode()


async def measure(port: int, seconds: float) -> Phase:
    """Let all honest clients work for a time."""
    phase = Phase([], 0)
    failures: list[str] = []
    end_s = time.monotonic() + seconds

    async def client(number: int) -> None:
        await asyncio.sleep(PAUSE_S * number / CLIENTS)
        turn = 0
        while True:
            try:
                reader, stream = await asyncio.open_connection("127.0.0.1", port)
                while time.monotonic() < end_s:
                    turn += 1
                    start_s = time.monotonic()
                    status = await ask(reader, stream, number, turn)
                    phase.latencies.append(time.monotonic() - start_s)
                    if status not in ("204", "404"):
                        failures.append(status)
                    await asyncio.sleep(PAUSE_S)
                stream.close()
            except (OSError, asyncio.IncompleteReadError) as error:
                failures.append(repr(error))
            else:
                return

    async with asyncio.TaskGroup() as tasks:
        for number in range(CLIENTS):
            tasks.create_task(client(number))
    if failures:
        print(f"failed: {dict(Counter(failures))}")
    return Phase(phase.latencies, len(failures))


@contextlib.asynccontextmanager
async def hostile(port: int, names: Sequence[str]) -> AsyncIterator[None]:
    """Run the hostile process until the block ends, which begins when all of its connections are open."""
    command = [sys.executable, "-m", "tests.integration.overload.hostile", str(port), *names]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=REPOSITORY)
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).decode().strip() == READY
        await asyncio.sleep(SETTLE_S)
        yield
    finally:
        process.kill()
        await process.wait()
    await asyncio.sleep(SETTLE_S)


def memory_mib(daemon: Daemon, name: str) -> int:
    """Return a line of the memory of a process, such as VmHWM."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{daemon.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


def told(name: str, latencies: list[float]) -> float:
    """Print the percentiles of latencies; return the 99th in seconds."""
    cuts = statistics.quantiles(latencies, n=100)
    p50, p99 = cuts[49], cuts[98]
    print(f"{name}: {len(latencies)} requests, p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms", flush=True)
    return p99


def answers(one: Client) -> float:
    """Return how many requests the writer has answered or refused since its start."""
    counted = re.findall(r"^shale_http_(?:requests|refusals)_total\{.*\} (.+)$", one.metrics(), re.MULTILINE)
    return sum(map(float, counted))


async def check(one: Client, names: Sequence[str], *, rounds: int, seconds: float) -> bool:
    """Measure in turn; return whether the honest clients were served well."""
    port, daemon = one.port, one.daemon
    alone: list[float] = []
    beside: list[float] = []
    failed = 0
    await measure(port, SETTLE_S)
    print(f"memory at the start: {memory_mib(daemon, 'VmRSS')} MiB")
    for number in range(rounds):
        quiet = await measure(port, seconds)
        told(f"round {number + 1}, alone", quiet.latencies)
        alone += quiet.latencies
        async with hostile(port, names):
            before = answers(one)
            loaded = await measure(port, seconds)
            others = answers(one) - before - len(loaded.latencies)
            told(f"round {number + 1}, beside", loaded.latencies)
            print(
                f"the others: {others / seconds:.0f} answers/s; memory: {memory_mib(daemon, 'VmRSS')} MiB", flush=True
            )
        beside += loaded.latencies
        failed += loaded.failed
    ratio = told("beside", beside) / told("alone", alone)
    levels = Counter(line["level"] for line in daemon.lines())
    print(f"p99 beside is {ratio:.2f} times p99 alone; at most {RATIO_MAX:g}")
    print(f"honest requests that failed: {failed}; peak of memory: {memory_mib(daemon, 'VmHWM')} MiB")
    print(f"log lines by level: {dict(levels)}")
    for event, count in Counter(line["event"] for line in daemon.lines() if line["level"] != "info").most_common(5):
        print(f"  {event}: {count}")
    is_alive = daemon.process.poll() is None
    return ratio <= RATIO_MAX and not failed and is_alive and not levels["error"] and not levels["critical"]


def main() -> int:
    """Run the check; 1 if it fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.overload")
    parser.add_argument("--rounds", type=int, default=4, help="how often both kinds of phases alternate")
    parser.add_argument("--seconds", type=float, default=10.0, help="of one phase")
    parser.add_argument("--only", action="append", choices=HOSTILE, help="only these connections beside honest clients")
    chosen = parser.parse_args()
    names = chosen.only or list(HOSTILE)
    raise_open_files()
    others = sum(HOSTILE[name][0] for name in names)
    print(f"{CLIENTS} honest clients beside {others} connections: {', '.join(names)}")
    with (
        tempfile.TemporaryDirectory() as name,
        writer(Path(name), env={"SHALE_TOKENS__WRITE": TOKEN}, is_fresh=True) as one,
    ):
        authorized = {"Authorization": f"Bearer {TOKEN}"}
        assert one.call("PUT", kv(LARGE_KEY), bytes(LARGE_BYTES), **authorized)[0] == 204
        rows = [["put", b"row-%08d" % number, bytes(ROW_BYTES)] for number in range(ROWS)]
        assert one.post("/v1/batch", {"ops": rows}, packed=True, **authorized)[0] == 200
        is_good = asyncio.run(check(one, names, rounds=chosen.rounds, seconds=chosen.seconds))
    print("passed" if is_good else "FAILED")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
