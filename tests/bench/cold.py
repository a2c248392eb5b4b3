"""What a process does first: every line is measured in fresh processes, beside both peers.

Keys are uniformly random, and the key ranges of the L0s overlap completely.  Each line is the median of rounds in
which the engines take turns.
"""

import asyncio
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import CLOCK_MONOTONIC as MONOTONIC
from time import clock_gettime, perf_counter

from tests.bench.line import BenchLine
from tests.bench.peers import PEERS, Peer
from tests.paths import REPOSITORY

KEYS = 100_000
L0_COUNT = 4
ROUNDS = 5
GETS = 1_000
SCANS = 20
LINES = {
    "interpreter, import and open": "<= 120 ms",
    "1,000 gets, blocks not in memory": ">= 20x wheel, >= 0.7x RocksDB",
    "1,000 gets of absent keys": ">= 4x RocksDB",
    "20 scans of 1,000 rows": ">= 0.8x RocksDB",
    "20 scans of 1 row": ">= 0.5x RocksDB",
    "20 scans of 10 rows": ">= 0.5x RocksDB",
    "full scan": ">= 1x RocksDB",
    "memory after a full scan": "<= 80 MB",
    "20,000 puts and a flush to L0": ">= 1x RocksDB",
}


def cold_lines() -> Iterator[BenchLine]:
    """Two lines for each kind of work: beside the wheel and beside RocksDB."""
    with tempfile.TemporaryDirectory() as folder:
        for peer in PEERS:
            _run(peer.name, folder, "fill")
        times: dict[str, dict[str, list[float]]] = {peer.name: {line: [] for line in LINES} for peer in PEERS}
        for _ in range(ROUNDS):
            for line in LINES:
                for peer in PEERS:
                    times[peer.name][line].append(_run(peer.name, folder, line))
    for line, target in LINES.items():
        unit = "MB" if line.startswith("memory") else "ms"
        ours = median(times["shale"][line])
        for peer in PEERS[1:]:
            reference = median(times[peer.name][line])
            yield BenchLine(name=f"{line} | {peer.name}", ours=ours, reference=reference, unit=unit, target=target)


def keys_of() -> list[bytes]:
    """Return the keys of the database, in the order in which they were written."""
    rng = random.Random(15)
    return [b"%016x" % rng.getrandbits(64) for _ in range(KEYS)]


def _run(peer: str, folder: str, work: str) -> float:
    started = clock_gettime(MONOTONIC)
    command = [sys.executable, "-m", "tests.bench.cold", peer, folder, work, str(started)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    result: float = json.loads(done.stdout)
    return result


async def measure(name: str, folder: str, work: str, started: float) -> float:
    """Do one kind of work on one engine; return milliseconds, or megabytes of memory."""
    peer: Peer = next(kind for kind in PEERS if kind.name == name)()
    place = Path(folder) / name
    place.mkdir(exist_ok=True)
    await peer.open(place)
    opened_ms = (clock_gettime(MONOTONIC) - started) * 1000
    try:
        if work == "fill":
            return await _fill(peer)
        if work.startswith("interpreter"):
            return opened_ms
        return await _work(peer, work, random.Random(started))
    finally:
        await peer.close()


async def _fill(peer: Peer) -> float:
    keys = keys_of()
    part = KEYS // L0_COUNT
    for start in range(0, KEYS, part):
        for at in range(start, start + part, 1000):
            await peer.batch(keys[at : at + 1000])
        await peer.flush()
    return 0.0


async def _work(peer: Peer, work: str, rng: random.Random) -> float:
    if work.endswith("flush to L0"):
        keys = [b"%016x" % rng.getrandbits(64) for _ in range(20_000)]
        start = perf_counter()
        for at in range(0, len(keys), 1000):
            await peer.batch(keys[at : at + 1000])
        await peer.flush()
        return (perf_counter() - start) * 1000
    if work == "full scan":
        seconds, _ = await peer.scan()
        return seconds * 1000
    if work.startswith("memory"):
        await peer.scan()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    keys = keys_of()
    if work.endswith("absent keys"):
        return await peer.get([b"%016x" % rng.getrandbits(64) for _ in range(GETS)]) * 1000
    if "gets" in work:
        return await peer.get(rng.choices(keys, k=GETS)) * 1000
    count = int(work.split()[3].replace(",", ""))
    starts = rng.choices(sorted(keys)[: -2 * count - 1], k=SCANS)
    return await peer.scan_some(starts, count) * 1000


if __name__ == "__main__":
    _, engine, database, kind, begun = sys.argv
    print(json.dumps(asyncio.run(measure(engine, database, kind, float(begun)))))
