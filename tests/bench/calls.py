"""Calls from Python: put, batch, get, many gets and scans, against the wheel and RocksDB, interleaved in one run."""

import asyncio
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from tests.bench.line import BenchLine
from tests.bench.peers import KEYS, L0_COUNT, PEERS, Peer, Wheel, key_of

ROUNDS = 5
PUTS = {"shale": 100_000, "slatedb": 2_000, "rocksdict": 50_000}
GETS = {"shale": 20_000, "slatedb": 1_500, "rocksdict": 20_000}
BATCH = 1_000

Times = dict[str, dict[str, list[float]]]


async def fill(peer: Peer) -> None:
    """Four L0s whose keys interleave."""
    numbers = list(range(KEYS))
    random.Random(3).shuffle(numbers)
    part = KEYS // L0_COUNT
    for start in range(0, KEYS, part):
        for first in range(start, start + part, BATCH):
            await peer.batch([key_of(number) for number in numbers[first : first + BATCH]])
        await peer.flush()


async def measure_reads(peer: Peer, times: dict[str, list[float]], rng: random.Random) -> None:
    """Microseconds per row of each way to read."""
    count = GETS[peer.name]
    present = [key_of(rng.randrange(KEYS)) for _ in range(count)]
    missing = [key_of(rng.randrange(KEYS)) + b"x" for _ in range(count)]
    times["get, hot, 4 L0s"].append(await peer.get(present) / count)
    times["get, missing"].append(await peer.get(missing) / count)
    times["get 1000 keys at once, per key"].append(await peer.get_many(present[:BATCH]) / BATCH)
    seconds, rows = await peer.scan()
    assert rows == KEYS
    times["full scan, per row"].append(seconds / rows)
    if isinstance(peer, Wheel):
        seconds, rows = await peer.scan_in_batches()
        times["full scan in batches, per row"].append(seconds / rows)


async def measure_writes(peer: Peer, times: dict[str, list[float]], number: int) -> None:
    """Microseconds per row of each way to write; fresh keys, so the readers' rows stay."""
    count = PUTS[peer.name]
    keys = [b"w%d/%014d" % (number, each) for each in range(count)]
    times["put, not durable"].append(await peer.put(keys) / count)
    batches = [keys[start : start + BATCH] for start in range(0, count, BATCH)]
    seconds = [await peer.batch(batch) for batch in batches]
    times["batch of 1000, per row"].append(median(seconds) / BATCH)


async def measure() -> Times:
    """Rounds over all engines in turn; a drifting machine drifts for all of them."""
    names = (
        "put, not durable", "batch of 1000, per row", "get, hot, 4 L0s", "get, missing",
        "get 1000 keys at once, per key", "full scan, per row", "full scan in batches, per row",
    )  # fmt: skip
    times: Times = {peer.name: {name: [] for name in names} for peer in PEERS}
    with tempfile.TemporaryDirectory() as directory:
        readers, writers = [peer() for peer in PEERS], [peer() for peer in PEERS]
        for kind, peers in (("r", readers), ("w", writers)):
            for peer in peers:
                folder = Path(directory) / kind / peer.name
                folder.mkdir(parents=True)
                await peer.open(folder)
        for peer in readers:
            await fill(peer)
            await peer.scan()
        for number in range(ROUNDS):
            rng = random.Random(number)
            for peer in writers:
                await measure_writes(peer, times[peer.name], number)
            for peer in readers:
                await measure_reads(peer, times[peer.name], rng)
        for peer in readers + writers:
            await peer.close()
    return times


TARGETS: Mapping[str, str] = {
    "put, not durable": ">= 50x wheel now, 100x later; >= 1.3x RocksDB",
    "batch of 1000, per row": ">= 100x wheel, >= 2x RocksDB",
    "get, hot, 4 L0s": ">= 20x wheel now, 40x later; >= 1.5x RocksDB",
    "get, missing": ">= 60x wheel, >= 5x RocksDB",
    "get 1000 keys at once, per key": ">= 50x wheel, >= 2.5x RocksDB",
    "full scan, per row": ">= 10x wheel now, 20x later; >= 1.3x RocksDB",
}


def call_lines() -> list[BenchLine]:
    """Two lines for each call: against the wheel and against RocksDB."""
    times = asyncio.run(measure())

    def us(peer: str, name: str) -> float:
        return median(times[peer][name]) * 1e6

    lines = [
        BenchLine(name=f"{name} | {peer}", ours=us("shale", name), reference=us(peer, name), unit="us", target=target)
        for name, target in TARGETS.items()
        for peer in ("slatedb", "rocksdict")
    ]
    lines.append(
        BenchLine(
            name="full scan, per row | slatedb next_batch",
            ours=us("shale", "full scan, per row"),
            reference=us("slatedb", "full scan in batches, per row"),
            unit="us",
            target="for comparison",
        )
    )
    return lines
