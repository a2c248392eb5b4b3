"""Calls from Python: put, batch, get, many gets and scans, against the wheel and RocksDB, interleaved in one run.

Then come the counted requests of reads to the store.  Peers write equal numbers of rows in turn (but the wheel, which
would take minutes), each after the work of the one before has ended, and every line's ratio is the median of the
rounds' ratios.
"""

import asyncio
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from tests.bench.line import BenchLine
from tests.bench.peers import KEYS, L0_COUNT, PEERS, Peer, Shale, Wheel, key_of
from tests.bench.requests import request_lines

ROUNDS = 7
PUTS = {"shale": 50_000, "slatedb": 1_000, "rocksdict": 50_000}
GETS = {"shale": 20_000, "slatedb": 1_500, "rocksdict": 20_000}
SCANS = {"shale": 20, "slatedb": 3, "rocksdict": 20}
BATCH = SOME = 1_000

Times = dict[str, dict[str, list[float]]]


async def fill(peer: Peer) -> None:
    """Write four L0s whose keys interleave."""
    numbers = list(range(KEYS))
    random.Random(3).shuffle(numbers)
    part = KEYS // L0_COUNT
    for start in range(0, KEYS, part):
        for first in range(start, start + part, BATCH):
            await peer.batch([key_of(number) for number in numbers[first : first + BATCH]])
        await peer.flush()


async def measure_reads(peer: Peer, times: dict[str, list[float]], rng: random.Random) -> None:
    """Return microseconds per row of each way to read."""
    count = GETS[peer.name]
    present = [key_of(rng.randrange(KEYS)) for _ in range(count)]
    missing = [key_of(rng.randrange(KEYS)) + b"x" for _ in range(count)]
    times["get, hot, 4 L0s"].append(await peer.get(present) / count)
    times["get, missing"].append(await peer.get(missing) / count)
    times["get 1000 keys at once, per key"].append(await peer.get_many(present[:BATCH]) / BATCH)
    starts = [key_of(rng.randrange(KEYS - SOME)) for _ in range(SCANS[peer.name])]
    times["scan of 1000 rows, per row"].append(await peer.scan_some(starts, SOME) / len(starts) / SOME)
    scans = {"full scan, per row": peer.scan}
    if isinstance(peer, Wheel):
        scans["full scan in batches, per row"] = peer.scan_in_batches
    if isinstance(peer, Shale):
        scans["full scan to keys and values, per row"] = peer.scan_items
        scans["full scan backward, per row"] = peer.scan_reverse
        scans["full scan to Arrow, per row"] = peer.scan_to_arrow
    for name, scan in scans.items():
        seconds, rows = await scan()
        assert rows == KEYS
        times[name].append(seconds / rows)


async def measure_writes(peer: Peer, times: dict[str, list[float]], number: int) -> None:
    """Return microseconds per row of each way to write; keys are new, so the readers' rows stay."""
    count = PUTS[peer.name]
    keys = [b"w%d/%014d" % (number, each) for each in range(count)]
    times["put, not durable"].append(await peer.put(keys) / count)
    batches = [keys[start : start + BATCH] for start in range(0, count, BATCH)]
    seconds = [await peer.batch(batch) for batch in batches]
    times["batch of 1000, per row"].append(median(seconds) / BATCH)
    newest = keys[-BATCH:]
    times["get, memtable"].append(await peer.get(newest) / len(newest))
    await peer.settle()


async def measure() -> Times:
    """Measure all engines in turn, round by round; a drift of the machine affects all of them."""
    names = (
        "put, not durable", "batch of 1000, per row", "get, hot, 4 L0s", "get, missing",
        "get, memtable", "get 1000 keys at once, per key", "scan of 1000 rows, per row", "full scan, per row",
        "full scan in batches, per row", "full scan to keys and values, per row", "full scan backward, per row",
        "full scan to Arrow, per row",
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


FULL_SCAN = "full scan, per row"
TARGETS: Mapping[str, str] = {
    "put, not durable": ">= 100x wheel, >= 1.3x RocksDB",
    "batch of 1000, per row": ">= 100x wheel, >= 2x RocksDB",
    "get, hot, 4 L0s": ">= 40x wheel, >= 1.5x RocksDB",
    "get, memtable": ">= 100x wheel, >= 1.5x RocksDB",
    "get, missing": ">= 60x wheel, >= 5x RocksDB",
    "get 1000 keys at once, per key": ">= 50x wheel, >= 2.5x RocksDB",
    "scan of 1000 rows, per row": ">= 12x wheel",
    FULL_SCAN: "rows of five fields, for comparison",
    "full scan to keys and values, per row": ">= 20x wheel, >= 1.3x RocksDB",
    "full scan to Arrow, per row": ">= 60x wheel, >= 5x RocksDB",
    "full scan backward, per row": "as forward",
}


def call_lines() -> list[BenchLine]:
    """Return two lines for each call: against the wheel and against RocksDB; then the requests."""
    times = asyncio.run(measure())

    def us(peer: str, name: str) -> list[float]:
        return [seconds * 1e6 for seconds in times[peer][name] or times[peer][FULL_SCAN]]

    lines = [
        BenchLine.of_rounds(f"{name} | {peer}", us("shale", name), us(peer, name), unit="us", target=target)
        for name, target in TARGETS.items()
        for peer in ("slatedb", "rocksdict")
    ]
    lines.append(
        BenchLine.of_rounds(
            "full scan, per row | slatedb next_batch",
            us("shale", FULL_SCAN),
            us("slatedb", "full scan in batches, per row"),
            unit="us",
            target="for comparison",
        )
    )
    return lines + request_lines()
