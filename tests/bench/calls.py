"""Calls from Python: put, batch, get, many gets and scans, against the wheel, RocksDB and LMDB, interleaved in one run.

Keys are uniformly random, and the ranges of the L0s overlap; in the lines in key order each L0 has a range of its own.
Then come the counted requests of reads to the store.  Peers write equal numbers of rows in turn (but the wheel, which
would take minutes), each after the work of the one before has ended, and every line's ratio is the median of the
rounds' ratios.
"""

import asyncio
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from tests.bench.line import BenchLine
from tests.bench.peers import KEYS, L0_COUNT, PEERS, Peer, Shale, Wheel, key_in_order, key_of
from tests.bench.requests import request_lines

ROUNDS = 7
PUTS = {"shale": 50_000, "slatedb": 1_000, "rocksdict": 50_000, "lmdb": 50_000}
GETS = {"shale": 20_000, "slatedb": 1_500, "rocksdict": 20_000, "lmdb": 20_000}
SCANS = {"shale": 20, "slatedb": 3, "rocksdict": 20, "lmdb": 20}
BATCH = SOME = 1_000

STARTS = sorted(map(key_of, range(KEYS)))[:-SOME]

Times = dict[str, dict[str, list[float]]]


async def fill(peer: Peer, key: Callable[[int], bytes]) -> None:
    """Write four L0s."""
    part = KEYS // L0_COUNT
    for start in range(0, KEYS, part):
        for first in range(start, start + part, BATCH):
            await peer.batch([key(number) for number in range(first, first + BATCH)])
        await peer.flush()


async def measure_reads(peer: Peer, times: dict[str, list[float]], rng: random.Random) -> None:
    """Return microseconds per row of each way to read."""
    count = GETS[peer.name]
    present = [key_of(rng.randrange(KEYS)) for _ in range(count)]
    missing = [key_of(KEYS + rng.randrange(1 << 60)) for _ in range(count)]
    times["get, hot, 4 L0s"].append(await peer.get(present) / count)
    times["get, missing"].append(await peer.get(missing) / count)
    times["get 1000 keys at once, per key"].append(await peer.get_many(present[:BATCH]) / BATCH)
    starts = rng.choices(STARTS, k=SCANS[peer.name])
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


async def measure_ordered_reads(peer: Peer, times: dict[str, list[float]], rng: random.Random) -> None:
    """Return microseconds per row of reads whose keys are in the range of one L0."""
    count = GETS[peer.name]
    present = [key_in_order(rng.randrange(KEYS)) for _ in range(count)]
    missing = [key_in_order(rng.randrange(KEYS)) + b"x" for _ in range(count)]
    starts = [key_in_order(rng.randrange(KEYS - SOME)) for _ in range(SCANS[peer.name])]
    times["get, hot, 4 L0s in key order"].append(await peer.get(present) / count)
    times["get, missing, 4 L0s in key order"].append(await peer.get(missing) / count)
    times["scan of 1000 rows, L0s in key order, per row"].append(
        await peer.scan_some(starts, SOME) / len(starts) / SOME
    )


async def measure_writes(peer: Peer, times: dict[str, list[float]], number: int) -> None:
    """Return microseconds per row of each way to write; keys are new, so the readers' rows stay."""
    count = PUTS[peer.name]
    keys = [key_of(number * count + each) for each in range(count)]
    times["put, not durable"].append(await peer.put(keys) / count)
    batches = [keys[start : start + BATCH] for start in range(0, count, BATCH)]
    seconds = [await peer.batch(batch) for batch in batches]
    times["batch of 1000, per row"].append(median(seconds) / BATCH)
    newest = keys[-BATCH:]
    times["get, memtable"].append(await peer.get(newest) / len(newest))
    await peer.settle()


async def measure() -> Times:
    """Measure all engines in turn, round by round; a drift of the machine affects all of them."""
    times: Times = {peer.name: defaultdict(list) for peer in PEERS}
    with tempfile.TemporaryDirectory() as directory:
        readers, writers, ordered = ([peer() for peer in PEERS] for _ in range(3))
        for kind, peers in (("r", readers), ("w", writers), ("o", ordered)):
            for peer in peers:
                folder = Path(directory) / kind / peer.name
                folder.mkdir(parents=True)
                await peer.open(folder)
        for peers, key in ((readers, key_of), (ordered, key_in_order)):
            for peer in peers:
                await fill(peer, key)
                await peer.scan()
        for number in range(ROUNDS):
            rng = random.Random(number)
            for peer in writers:
                await measure_writes(peer, times[peer.name], number)
            for peer in readers:
                await measure_reads(peer, times[peer.name], rng)
            for peer in ordered:
                await measure_ordered_reads(peer, times[peer.name], rng)
        for peer in readers + writers + ordered:
            await peer.close()
    return times


FULL_SCAN = "full scan, per row"
TARGETS: Mapping[str, str] = {
    "put, not durable": ">= 100x wheel, >= 1.3x RocksDB",
    "batch of 1000, per row": ">= 100x wheel, >= 2x RocksDB",
    "get, hot, 4 L0s": ">= 40x wheel, >= 1.5x RocksDB, >= 0.7x LMDB",
    "get, memtable": ">= 100x wheel, >= 1.5x RocksDB",
    "get, missing": ">= 60x wheel, >= 5x RocksDB, >= 0.7x LMDB",
    "get 1000 keys at once, per key": ">= 50x wheel, >= 2.5x RocksDB, >= 1.5x LMDB",
    "scan of 1000 rows, per row": ">= 12x wheel, >= 0.8x RocksDB, >= 0.6x LMDB",
    FULL_SCAN: "rows of five fields, for comparison",
    "full scan to keys and values, per row": ">= 20x wheel, >= 1.3x RocksDB, >= 0.8x LMDB",
    "full scan to Arrow, per row": ">= 60x wheel, >= 5x RocksDB, >= 1.3x LMDB",
    "full scan backward, per row": "as forward",
    "get, hot, 4 L0s in key order": "for comparison",
    "get, missing, 4 L0s in key order": "for comparison",
    "scan of 1000 rows, L0s in key order, per row": "for comparison",
}


def call_lines() -> list[BenchLine]:
    """Return a line for each call and peer; then the requests."""
    times = asyncio.run(measure())

    def us(peer: str, name: str) -> list[float]:
        return [seconds * 1e6 for seconds in times[peer][name] or times[peer][FULL_SCAN]]

    lines = [
        BenchLine.of_rounds(f"{name} | {peer}", us("shale", name), us(peer, name), unit="us", target=target)
        for name, target in TARGETS.items()
        for peer in ("slatedb", "rocksdict", "lmdb")
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
