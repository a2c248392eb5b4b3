"""One process of the suite ``cold``: it does one kind of work on one engine and prints milliseconds.

Usage: ``python -m tests.bench.cold.process ENGINE FOLDER WORK STARTED``.  It imports only what the engine needs.
"""

import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from time import CLOCK_MONOTONIC as MONOTONIC
from time import clock_gettime, perf_counter

from tests.bench.cold.work import (
    BATCH,
    DISK,
    ENGINES,
    HOT,
    KEYS,
    L0_COUNT,
    LINES,
    WARM,
    keys_of,
    random_keys,
    resident_mb,
)
from tests.bench.peers import Peer, Shale

GETS = 1_000
SCANS = 20
WRITES = 20_000


async def measure(name: str, folder: str, work: str, started: float) -> list[float]:
    """Do one kind of work on one engine; return milliseconds of each time, or megabytes of memory."""
    engine = ENGINES[name]
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
    await _put(peer, random_keys(rng, WRITES))
    start = perf_counter()
    await peer.settle()
    return (perf_counter() - start) * 1000


async def _work(peer: Peer, work: str, rng: random.Random) -> float:
    if "puts" in work:
        return await _put(peer, random_keys(rng, WRITES))
    if work.startswith("flush"):
        await _put(peer, random_keys(rng, KEYS))
        start = perf_counter()
        await peer.flush()
        return (perf_counter() - start) * 1000
    if "Arrow" in work and isinstance(peer, Shale):
        return (await peer.scan_to_arrow())[0] * 1000
    if work.startswith("full scan"):
        return (await peer.scan())[0] * 1000
    if work.startswith("memory"):
        await peer.scan()
        return resident_mb()
    if work.endswith("absent keys"):
        return await peer.get(random_keys(rng, GETS)) * 1000
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
