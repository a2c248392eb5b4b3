"""What a process does first: every line is measured in fresh processes, beside the three peers.

Keys are uniformly random, and the key ranges of the L0s overlap completely.  Each line is the median of rounds in
which the engines take turns.  A process does its work up to three times: *cold* is the first time, *warm* the same
after the database was opened again, so that no block is in memory, and *hot* once more on the same open database.
"""

import asyncio
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from time import CLOCK_MONOTONIC as MONOTONIC
from time import clock_gettime, perf_counter

from tests.bench.line import BenchLine
from tests.bench.peers import PEERS, Lmdb, Peer, Shale
from tests.paths import REPOSITORY

ENGINES: tuple[type[Peer], ...] = (*PEERS, Lmdb)
KEYS = 100_000
L0_COUNT = 4
ROUNDS = 5
GETS = BATCH = 1_000
SCANS = 20
WRITES = 20_000
COLD, WARM, HOT = "cold", "warm", "hot"
DISK = "disk cache: 1,000 gets"


@dataclass(frozen=True, slots=True)
class Work:
    """Work to measure: its target in words, how often a process does it, and the engines that can."""

    target: str
    phases: tuple[str, ...] = (COLD, WARM)
    without: tuple[str, ...] = ()


READS = (COLD, WARM, HOT)
LINES: Mapping[str, Work] = {
    "interpreter, import and open": Work("<= 120 ms", (COLD,)),
    "open an existing database": Work("as RocksDB"),
    "replay of 100,000 rows": Work(">= 2x wheel", without=("lmdb",)),
    "1,000 gets": Work("blocks not in memory: >= 20x wheel, >= 0.7x RocksDB; hot: >= 0.7x LMDB", READS),
    DISK: Work("as 1,000 gets", READS, without=("slatedb", "rocksdict", "lmdb")),
    "1,000 gets of absent keys": Work(">= 4x RocksDB, >= 0.7x LMDB", READS),
    "1,000 keys at once": Work(">= 1.5x LMDB", READS),
    "20 scans of 1,000 rows": Work(">= 0.8x RocksDB, >= 0.6x LMDB", READS),
    "20 scans of 100 rows": Work(">= 0.8x RocksDB", READS),
    "20 scans of 10 rows": Work(">= 0.5x RocksDB, >= 0.2x LMDB", READS),
    "20 scans of 1 row": Work(">= 0.5x RocksDB", READS),
    "full scan": Work(">= 1x RocksDB, >= 0.8x LMDB"),
    "full scan to Arrow": Work(">= 3x RocksDB, >= 1.3x LMDB", without=("slatedb",)),
    "memory after a full scan": Work("<= 80 MB", (COLD,)),
    "20,000 puts in batches of 1,000": Work("for comparison"),
    "WAL flush of 20,000 rows": Work("3 ms", without=("slatedb", "rocksdict", "lmdb")),
    "flush of 100,000 rows to L0": Work(">= 1x RocksDB"),
}
"""Lines by name.  SlateDB's slower puts leave few rows waiting for a WAL flush, and its full scans take long.  RocksDB
writes its log at once; LMDB has none."""


def cold_lines() -> Iterator[BenchLine]:
    """Return a line for each kind of work, time of it and peer."""
    with tempfile.TemporaryDirectory() as folder:
        for engine in ENGINES:
            Path(folder, engine.name).mkdir()
            Path(folder, f"{engine.name}-log").mkdir()
            _run(engine.name, folder, "fill")
            _run(engine.name, folder, "log")
        _run(Shale.name, folder, "parts")
        times: dict[tuple[str, str], list[list[float]]] = {}
        for _ in range(ROUNDS):
            for name, work in LINES.items():
                for engine in ENGINES:
                    if engine.name not in work.without:
                        times.setdefault((name, engine.name), []).append(_run(engine.name, folder, name))
    for name, work in LINES.items():
        for place, phase in enumerate(work.phases):
            values = {
                engine.name: [result[place] for result in times[name, engine.name]]
                for engine in ENGINES
                if engine.name not in work.without
            }
            yield from _beside(f"{name}, {phase}", values, work.target, "MB" if name.startswith("memory") else "ms")
    yield from compaction_lines()


def _beside(name: str, values: Mapping[str, list[float]], target: str, unit: str) -> Iterator[BenchLine]:
    """Return our line beside each peer, or alone."""
    ours = median(values["shale"])
    peers = {peer: median(theirs) for peer, theirs in values.items() if peer != "shale"}
    for peer, reference in peers.items():
        yield BenchLine(name=f"{name} | {peer}", ours=ours, reference=reference, unit=unit, target=target)
    if not peers:
        yield BenchLine(name=name, ours=ours, unit=unit, target=target)


def compaction_lines() -> Iterator[BenchLine]:
    """One compaction of 4 x 250,000 rows, asked for, done and seen; the peers have no second one in a process."""
    # The processes of the other lines must not import all this.
    from tests.bench.compaction.load import Load
    from tests.bench.compaction.rocks import prepare
    from tests.bench.compaction.suite import child, prepared, rocks, wheel

    load = Load(rows=1_000_000, value_bytes=100)
    cold, warm, slatedb, rocksdict = [], [], [], []
    with prepared(load) as source, tempfile.TemporaryDirectory() as folder:
        template = Path(folder, "rocks")
        prepare(str(template), load)
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as copies:
                paths = [shutil.copytree(source, Path(copies, name)) for name in (COLD, WARM)]
                first, second = child("asked", *paths)
            cold.append(first * 1000)
            warm.append(second * 1000)
            slatedb.append(wheel(source).wall_s * 1000)
            rocksdict.append(rocks(template, load).wall_s * 1000)
    for phase, ours in ((COLD, cold), (WARM, warm)):
        values = {"shale": ours, "slatedb": slatedb, "rocksdict": rocksdict}
        yield from _beside(f"compaction of 4 x 250,000 rows, {phase}", values, ">= 8x wheel, >= 1.5x RocksDB", "ms")


def keys_of() -> list[bytes]:
    """Return the keys of the database, in the order in which they were written."""
    return _random_keys(random.Random(15), KEYS)


def _random_keys(rng: random.Random, count: int) -> list[bytes]:
    return [b"%016x" % rng.getrandbits(64) for _ in range(count)]


def _run(engine: str, folder: str, work: str) -> list[float]:
    started = clock_gettime(MONOTONIC)
    command = [sys.executable, "-m", "tests.bench.cold", engine, folder, work, str(started)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    result: list[float] = json.loads(done.stdout)
    return result


async def measure(name: str, folder: str, work: str, started: float) -> list[float]:
    """Do one kind of work on one engine; return milliseconds of each time, or megabytes of memory."""
    engine = next(kind for kind in ENGINES if kind.name == name)
    place, log = Path(folder, name), Path(folder, f"{name}-log")
    if work == "fill":
        return await _fill(engine(), place)
    if work == "parts":
        return await _fill_parts(place, Path(folder, work))
    if work == "log":
        return await _fill_log(engine(), log)
    if work.startswith("interpreter"):
        await _opened(engine(), place)
        return [(clock_gettime(MONOTONIC) - started) * 1000]
    import_module("slatedb.uniffi" if name == "slatedb" else name)  # not part of what is measured from here on
    results: list[float] = []
    phases = LINES[work].phases
    for phase in phases:
        if phase == HOT:
            continue
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            if work.startswith("replay"):
                shutil.copytree(log, scratch, dirs_exist_ok=True)
            is_read = "put" not in work and "flush" not in work and "replay" not in work
            peer, at = engine(), place if is_read else Path(scratch)
            rng = random.Random(started)  # the same keys each time
            if work.startswith(("open", "replay")):
                results.append(await _opened(peer, at))
            elif work == DISK:
                assert isinstance(peer, Shale)
                await peer.open(at, disk_cache=Path(folder, "parts"))
                results.append(await _work(peer, work, rng))
                results += [await _work(peer, work, random.Random(started))] * (phase == WARM)
            elif work.startswith("WAL"):
                assert isinstance(peer, Shale)
                await peer.open(at, flush_interval=60)
                results.append(await _flush_wal(peer, rng))
            else:
                await peer.open(at)
                results.append(await _work(peer, work, rng))
                if HOT in phases and phase == WARM:
                    results.append(await _work(peer, work, random.Random(started)))
            await peer.close()
    return results


async def _opened(peer: Peer, place: Path) -> float:
    start = perf_counter()
    await peer.open(place)
    return (perf_counter() - start) * 1000


async def _fill_parts(place: Path, parts: Path) -> list[float]:
    """Read everything through a disk cache, which then holds it."""
    peer = Shale()
    await peer.open(place, disk_cache=parts)
    seconds = await peer.get_many(keys_of())
    await peer.close()
    return [seconds]


async def _fill(peer: Peer, place: Path) -> list[float]:
    await peer.open(place)
    keys = keys_of()
    part = KEYS // L0_COUNT
    for start in range(0, KEYS, part):
        await _put(peer, keys[start : start + part])
        await peer.flush()
    await peer.close()
    return []


async def _fill_log(peer: Peer, place: Path) -> list[float]:
    """Write rows to the log and end without closing, so that the next process replays them."""
    await peer.open(place)
    await _put(peer, keys_of())
    await peer.settle()
    sys.stdout.write("[]")
    sys.stdout.flush()
    os._exit(0)


async def _put(peer: Peer, keys: list[bytes]) -> float:
    return sum([await peer.batch(keys[at : at + BATCH]) for at in range(0, len(keys), BATCH)]) * 1000


async def _flush_wal(peer: Peer, rng: random.Random) -> float:
    await _put(peer, _random_keys(rng, WRITES))
    start = perf_counter()
    await peer.settle()
    return (perf_counter() - start) * 1000


async def _work(peer: Peer, work: str, rng: random.Random) -> float:
    if "puts" in work:
        return await _put(peer, _random_keys(rng, WRITES))
    if work.startswith("flush"):
        await _put(peer, _random_keys(rng, KEYS))
        start = perf_counter()
        await peer.flush()
        return (perf_counter() - start) * 1000
    if "Arrow" in work and isinstance(peer, Shale):
        return (await peer.scan_to_arrow())[0] * 1000
    if work.startswith("full scan"):
        return (await peer.scan())[0] * 1000
    if work.startswith("memory"):
        await peer.scan()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    if work.endswith("absent keys"):
        return await peer.get(_random_keys(rng, GETS)) * 1000
    keys = keys_of()
    if work.endswith("at once"):
        return await peer.get_many(rng.choices(keys, k=GETS)) * 1000
    if work.endswith("gets"):
        return await peer.get(rng.choices(keys, k=GETS)) * 1000
    count = int(work.split()[3].replace(",", ""))
    starts = rng.choices(sorted(keys)[: -2 * count - 1], k=SCANS)
    return await peer.scan_some(starts, count) * 1000


if __name__ == "__main__":
    _, engine_name, database, kind, begun = sys.argv
    print(json.dumps(asyncio.run(measure(engine_name, database, kind, float(begun)))))
